"""Measurements of this engine and, where there is one, of a peer."""
