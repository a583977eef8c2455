"""Consumer groups: members, generations, offsets, and the messages between members."""
