"""Results: lines and goals, the result file, the terminal table, and the page."""
