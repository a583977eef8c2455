"""The marker of a cleanly closed directory (storage-format §10)."""

from __future__ import annotations

from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import write_atomically

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1


def is_clean_shutdown(fs: FileSystem, log_dir: str) -> bool:
    """Return whether the last process to use the directory closed it cleanly."""
    return fs.exists(f"{log_dir}/{CLEAN_SHUTDOWN}")


def mark_clean_shutdown(
    fs: FileSystem, log_dir: str, *, broker_epoch: int = NO_BROKER_EPOCH
) -> None:
    """Write the clean-shutdown marker. This is the last step of closing a directory.

    Only its existence matters here. The epoch is for a Kafka broker that opens the directory.
    """
    text = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    write_atomically(fs, f"{log_dir}/{CLEAN_SHUTDOWN}", text.encode())


def take_clean_shutdown(fs: FileSystem, log_dir: str) -> bool:
    """Remove the clean-shutdown marker durably and return whether it existed.

    This is the first step of loading a directory, so that a later crash is not mistaken for a clean
    shutdown.
    """
    if not is_clean_shutdown(fs, log_dir):
        return False
    fs.remove(f"{log_dir}/{CLEAN_SHUTDOWN}")
    fs.sync_dir(log_dir)
    return True
