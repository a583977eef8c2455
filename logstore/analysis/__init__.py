"""Analysis of partitions: explanations, fates, statistics, differences, erasure and salvage."""
