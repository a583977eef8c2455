"""Workloads and how Spark makes them: spec, blocks, parcels, the files of a topic."""
