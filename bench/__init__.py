"""Benchmarks, rivals and Spark workloads: the outermost layer, imported by none of the others."""

if __name__ == "bench":  # a second copy would have exceptions of its own, which nobody catches
    raise ImportError("import logstore.bench: 'bench' is the folder of its sources")
