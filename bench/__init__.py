"""Benchmarks, rivals and Spark workloads: the outermost layer, imported by none of the others."""
