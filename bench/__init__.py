"""Benchmarks and the peers they compare with. No other package imports this one."""

if __name__ == "bench":  # a second copy would have different exceptions
    raise ImportError("import logstore.bench instead: 'bench' is its source directory")
