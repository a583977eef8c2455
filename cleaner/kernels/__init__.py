"""Compiled loops of the cleaner, with their columns, codes and statuses.

`table` scans the batches of a chunk. `mapping` fills a map with their records (`offsets` or
`versions`, using `slots`). `ranges` selects the parts of a segment to read. `classify` decides the
fate of each record, `assemble` writes the survivors, and `facts` lists the fates.
"""
