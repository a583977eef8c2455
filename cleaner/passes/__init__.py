"""A pass over a partition: map the dirty section, rewrite segments, and swap them in."""
