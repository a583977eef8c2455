"""Topics as Spark sees them: what is read, what is written, and in which pieces."""
