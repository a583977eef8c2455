"""Consumer groups: their members, generations and offsets, and what clients say to each other."""
