"""The small files of a data directory: checkpoints, the clean-shutdown marker, topic ids."""

from logstore.storage.checkpoint.atomic import (
    TMP_SUFFIX,
    UNREADABLE,
    read_bytes,
    remove_temporary,
    write_atomically,
)
from logstore.storage.checkpoint.offsets import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    OffsetCheckpoint,
)
from logstore.storage.checkpoint.rows import (
    CHECKPOINT_VERSION,
    Row,
    parse_number,
    read_rows,
    write_rows,
)
from logstore.storage.checkpoint.shutdown import (
    CLEAN_SHUTDOWN,
    NO_BROKER_EPOCH,
    is_clean_shutdown,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from logstore.storage.checkpoint.topic_id import (
    PARTITION_METADATA,
    read_partition_metadata,
    write_partition_metadata,
)

__all__ = [
    "CHECKPOINTS",
    "CHECKPOINT_VERSION",
    "CLEANER_OFFSETS",
    "CLEAN_SHUTDOWN",
    "LOG_START_OFFSETS",
    "NO_BROKER_EPOCH",
    "PARTITION_METADATA",
    "RECOVERY_POINTS",
    "REPLICATION_OFFSETS",
    "TMP_SUFFIX",
    "UNREADABLE",
    "OffsetCheckpoint",
    "Row",
    "is_clean_shutdown",
    "mark_clean_shutdown",
    "parse_number",
    "read_bytes",
    "read_partition_metadata",
    "read_rows",
    "remove_temporary",
    "take_clean_shutdown",
    "write_atomically",
    "write_partition_metadata",
    "write_rows",
]
