"""Topics: names, ids, partitions and overrides, stored or derived from folders."""

from logstore.manager.topics.store import TOPICS_FILE, Topic, TopicStore

__all__ = ["TOPICS_FILE", "Topic", "TopicStore"]
