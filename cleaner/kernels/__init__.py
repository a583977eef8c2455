"""Compiled loops of the cleaner, with their columns, codes and statuses.

`table` scans the batches of a chunk. `mapping` fills a map from their records (`offsets` or
`versions`, over `slots`). `ranges` selects the parts of a segment to read. `classify` decides each
record's fate, `assemble` writes the survivors, and `facts` lists the fates.
"""
