"""What a workload is, and how Spark makes it: spec, blocks, parcels, the files of a topic."""
