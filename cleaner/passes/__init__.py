"""One pass over one partition: map the dirty section, rewrite segments, swap them in."""
