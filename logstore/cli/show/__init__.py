"""Output for people: text, tables, pictures of partitions, progress, messages; and JSON."""
