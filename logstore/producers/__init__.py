"""What a partition knows of its producers: entries, rules, state, snapshots."""
