"""Log compaction: select logs, decide which records survive, and replace segments.

This package only uses public names of `logstore`, which does not import it.
"""

if __name__ == "cleaner":  # handlers would not catch exceptions of a second copy
    raise ImportError("import logstore.cleaner: 'cleaner' is the folder of its sources")
