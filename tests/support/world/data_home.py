"""A data directory with its runtime, to be opened, killed and read repeatedly."""

from __future__ import annotations

import random

from logstore.config.broker_config import BrokerConfig
from logstore.manager.manager import LogManager
from logstore.runtime import OverlayFileSystem, ReadOnlyFileSystem, Runtime
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.log import NewRecord
from tests.support.world.builders import records_of
from tests.support.world.golden_dirs import tree


class Home:
    """A data directory and the runtime to open it with."""

    def __init__(self, fs, path, clock):
        self.fs = fs
        self.path = path
        self.clock = clock
        self.runtime = Runtime(clock, fs, random.Random(0))

    def open(self, *more, read_only=False, runtime=None, on_load=None, **properties):
        if runtime is None:
            fs = OverlayFileSystem(ReadOnlyFileSystem(self.fs)) if read_only else self.fs
            runtime = Runtime(self.clock, fs, random.Random(0))
        properties = {key.replace("_", "."): value for key, value in properties.items()}
        properties.setdefault("log.index.size.max.bytes", "4000")
        config = BrokerConfig.from_properties(properties)
        return LogManager(runtime, [self.path, *more], config, read_only=read_only, on_load=on_load)

    @staticmethod
    def kill(manager):
        """Abandon a manager as if its process had ended, without a flush or a write."""
        manager.runtime.scheduler.shutdown()
        for directory in manager.directories:
            directory.close(clean=False)

    def files(self):
        return tree(self.fs, self.path)

    def text(self, name):
        return read_bytes(self.fs, f"{self.path}/{name}").decode()

    def write(self, name, data):
        directory, _, _ = f"{self.path}/{name}".rpartition("/")
        self.fs.make_dirs(directory)
        file = self.fs.open(f"{self.path}/{name}", create=True)
        file.truncate(0)
        file.append([data])
        file.close()


def fill(log, count):
    for _ in range(count):
        log.writer.append_records([NewRecord(b"k", b"v")])


def offsets(log):
    return [record.offset for record in records_of(log)]
