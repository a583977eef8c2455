"""What a pass reads of the clean section under strategies with versions, and what it learns there.

The bytes are counted by the file system, not by the cleaner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from cleaner.clean import clean_pass
from cleaner.config import CleanerConfig
from cleaner.stats import CleanerStats
from logstore.log import Log
from logstore.runtime import File, FileSystem
from tests.support.builders import abort, commit, data_batch, memory_world
from tests.support.cleaning import (
    ALL_KEYS,
    compacted,
    drive,
    map_of,
    offsets_in,
    put,
    put_batches,
    put_each,
    run_pass,
)
