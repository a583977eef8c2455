"""Topics: their names, ids, partitions and overrides, kept across runs, and found as folders."""

from logstore.manager.topics.store import TOPICS_FILE, Topic, TopicStore

__all__ = ["TOPICS_FILE", "Topic", "TopicStore"]
