"""Measurements of this engine and, if available, a peer."""
