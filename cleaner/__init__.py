"""Log compaction: which log to clean, what survives, and how the bytes are replaced.

Built on the public names of `logstore`'s core, which knows nothing of it.
"""

if __name__ == "cleaner":  # a second copy would have exceptions of its own, which nobody catches
    raise ImportError("import logstore.cleaner: 'cleaner' is the folder of its sources")
