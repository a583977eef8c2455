"""Log compaction: select logs, decide which records are retained, replace segments.

This package uses the public names of the core of `logstore`. The core does not import it.
"""

if __name__ == "cleaner":  # a second copy would have exceptions that no handler catches
    raise ImportError("import logstore.cleaner: 'cleaner' is the folder of its sources")
