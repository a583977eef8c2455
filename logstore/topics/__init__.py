"""Topics: their names, ids, partitions and overrides, kept across runs, and found as folders."""

from logstore.topics.store import INTERNAL_COMPACTED_TOPICS, TOPICS_FILE, Topic, TopicStore

__all__ = ["INTERNAL_COMPACTED_TOPICS", "TOPICS_FILE", "Topic", "TopicStore"]
