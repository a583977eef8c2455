"""Compiled loops of the cleaner, and the columns, codes and statuses that go with them.

`table` scans the batches of a chunk. `mapping` fills a map from their records (`offsets` or
`versions`, over `slots`). `ranges` chooses what is read again and checked. `classify` decides each
record's fate, `assemble` writes what survives, and `facts` lists the fates.
"""
