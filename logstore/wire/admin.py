"""The APIs of topics, partitions and log directories."""
