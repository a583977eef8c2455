"""Measurements of this engine, each beside its peer where there is one."""
