"""One pass over one partition: map the dirty section, rewrite what it touches, swap."""
