"""Answers about partitions: explanations, fates, statistics, differences, erasure, salvage."""
