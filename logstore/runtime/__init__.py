"""Access to the outside world: time, files, randomness, locks and background work.

No other package of the engine uses them directly (enforced by ruff). All other code receives a
`Runtime`, so it runs on disk or in memory, in system or virtual time, in many threads or one.
"""

from logstore.runtime.clock import (
    Clock,
    FixedWallClock,
    ShiftedClock,
    SkewedClock,
    SystemClock,
    VirtualClock,
    wall_ms_of,
)
from logstore.runtime.deterministic import DeterministicScheduler
from logstore.runtime.environment import (
    Random,
    Runtime,
    background_scheduler,
    is_repeatable,
    random_source,
)
from logstore.runtime.exclusive import ThreadGuard, for_one_thread, one_at_a_time
from logstore.runtime.fs import (
    DiskFileSystem,
    File,
    FileKind,
    FileStat,
    FileSystem,
    NotRegularFileError,
    clear_folder,
    directory_of,
    make_dirs_durably,
    open_anew,
    read_pieces,
    remove_tree,
)
from logstore.runtime.lifetime import Lifetime
from logstore.runtime.locks import UNKNOWN_PROCESS, FileLock
from logstore.runtime.memfs import MemoryFileSystem
from logstore.runtime.open_files import raise_descriptor_limit
from logstore.runtime.overlay import OverlayFileSystem
from logstore.runtime.readonly import ReadOnlyFileSystem
from logstore.runtime.scheduler import Deadlock, ScheduledTask, Scheduler
from logstore.runtime.signals import Signal, Unsubscribe
from logstore.runtime.threads import ThreadScheduler

__all__ = [
    "UNKNOWN_PROCESS",
    "Clock",
    "Deadlock",
    "DeterministicScheduler",
    "DiskFileSystem",
    "File",
    "FileKind",
    "FileLock",
    "FileStat",
    "FileSystem",
    "FixedWallClock",
    "Lifetime",
    "MemoryFileSystem",
    "NotRegularFileError",
    "OverlayFileSystem",
    "Random",
    "ReadOnlyFileSystem",
    "Runtime",
    "ScheduledTask",
    "Scheduler",
    "ShiftedClock",
    "Signal",
    "SkewedClock",
    "SystemClock",
    "ThreadGuard",
    "ThreadScheduler",
    "Unsubscribe",
    "VirtualClock",
    "background_scheduler",
    "clear_folder",
    "directory_of",
    "for_one_thread",
    "is_repeatable",
    "make_dirs_durably",
    "one_at_a_time",
    "open_anew",
    "raise_descriptor_limit",
    "random_source",
    "read_pieces",
    "remove_tree",
    "wall_ms_of",
]
