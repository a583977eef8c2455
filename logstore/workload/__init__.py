"""Workload generation: specs, random draws, and sealed batches of keyed records."""
