"""Log compaction: which log to clean, what survives, and how the bytes are replaced.

Built on the public names of `logstore`'s core, which knows nothing of it.
"""
