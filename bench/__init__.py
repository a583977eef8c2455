"""Benchmarks and the peers that they compare with: the outermost layer, imported by no other."""

if __name__ == "bench":  # a second copy would define its exceptions again
    raise ImportError("import logstore.bench instead: 'bench' is its source directory")
