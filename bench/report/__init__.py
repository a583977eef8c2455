"""Results: their lines and goals, their file, the table in the terminal and the page."""
