"""Topic ids: UUIDs that distinguish a topic from an earlier topic with the same name (KIP-516).

A topic's id is stored with the topic and in each partition folder (`partition.metadata`). A broker
in KRaft mode treats a folder as stray if that file is missing or has a different topic id.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from logstore.errors import CorruptCheckpointError, InconsistentTopicIdError
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA, read_partition_metadata
from logstore.types import encode_topic_id

if TYPE_CHECKING:
    from logstore.runtime import FileSystem, Random
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


def random_topic_id(rng: Random) -> str:
    """Return a new id: a random UUID (version 4) in 22 characters of URL-safe base64.

    As in Kafka, it never starts with `-`, which a tool would parse as an option.
    """
    while True:
        text = encode_topic_id(uuid.UUID(int=rng.getrandbits(128), version=4).bytes)
        if not text.startswith("-"):
            return text


def read_topic_id(fs: FileSystem, folder: str) -> str | None:
    """Return the topic id in a partition's folder, or None if there is none.

    A damaged or unreadable file counts as missing, with a warning. In this case, Kafka takes the
    whole data directory offline.
    """
    try:
        found = read_partition_metadata(fs, folder)
    except CorruptCheckpointError as error:
        logger.warning("%s; it is treated as missing", error)
        return None
    except OSError as error:
        logger.warning("%s/%s: %s; it is treated as missing", folder, PARTITION_METADATA, error)
        return None
    return None if found is None else encode_topic_id(found)


def inconsistent_topic_id(
    topic_partition: TopicPartition, folder: str, topic_id: str, found: str
) -> InconsistentTopicIdError:
    """Return the error for a partition whose folder has the id of a different topic."""
    return InconsistentTopicIdError(
        f"{topic_partition}: the topic's id is {topic_id}, but {folder}/{PARTITION_METADATA} has"
        f" {found}: the folder belongs to another topic of this name"
    )
