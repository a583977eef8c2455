"""What a person sees: text, tables, pictures of partitions, progress, messages; and JSON."""
