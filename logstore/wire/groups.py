"""The APIs of consumer groups: coordinators, members, offsets, administration."""
