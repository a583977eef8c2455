"""Log compaction: select logs, decide which records are retained, replace segments.

Uses the public names of `logstore`'s core. The core does not import this package.
"""

if __name__ == "cleaner":  # a second copy would have exceptions that no handler catches
    raise ImportError("import logstore.cleaner: 'cleaner' is the folder of its sources")
