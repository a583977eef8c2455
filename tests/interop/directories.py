"""Log directories that this engine writes, one function a shape, for Kafka to judge.

Each function fills an empty directory and returns how it is to be opened. Directories that were
not closed cleanly are made by copying them while the broker is still open.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logstore import Broker
from logstore.cleaner.config import CleanerConfig
from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.storage.log import Log, NewRecord
from logstore.types import AppendOrigin
from tests.interop.stories import START_MS, story
from tests.support.interop import engine

TOPIC = "ours"
GOLDEN = Path(__file__).parent.parent / "data" / "kafka-3.9"
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Written:
    """A directory, and the circumstances in which it is opened."""

    path: Path
    config: dict[str, str] = field(default_factory=dict)
    now_ms: int = START_MS
    topic: str = TOPIC

    is_sound: bool = True
    """Whether the files are those of a log; else only loading makes them so."""

    @property
    def partition(self) -> Path:
        """The partition's folder."""
        return self.path / f"{self.topic}-0"


Writer = Callable[[Path], Written]

WRITERS: dict[str, Writer] = {}
"""All shapes by name; how a name begins tells the row of the table it counts for."""


def shape(name: str) -> Callable[[Writer], Writer]:
    def register(writer: Writer) -> Writer:
        WRITERS[name] = writer
        return writer

    return register


def broker_at(path: Path, now_ms: int = START_MS, **config: object) -> tuple[Broker, Log]:
    broker = engine.open_broker(path, TOPIC, texts(config), now_ms)
    return broker, broker.log(TOPIC)


def texts(config: dict[str, object]) -> dict[str, str]:
    """Return topic overrides by Kafka's keys."""
    return {key.replace("_", "."): str(value) for key, value in config.items()}


# -- records of every shape, in every codec ------------------------------------------------------


def _every_shape(log: Log, codec: Codec) -> None:
    t = START_MS
    noise = random.Random(7)
    batches: Sequence[Sequence[NewRecord]] = (
        [
            NewRecord(b"empty-value", b"", t),
            NewRecord(b"one-byte", b"x", t + 5),
            NewRecord(b"hundred", bytes(range(100)), t - 20),
            NewRecord(None, b"null key", t + 1),
            NewRecord(b"", b"empty key", t + 2),
            NewRecord(b"null-value", None, t + 3),
            NewRecord(None, None, t + 4),
        ],
        [
            NewRecord(
                b"headers",
                b"v",
                t + 100,
                (
                    ("trace", b"a"),
                    ("trace", b"b"),
                    ("null-value", None),
                    ("", b"empty name"),
                    ("empty-value", b""),
                    ("größe", bytes((0, 255, 127, 128))),
                    ("trace", b"a"),
                ),
            ),
            NewRecord(bytes((0, 1, 255)), bytes((0xC3, 0x28)), t + 99),
        ],
        [NewRecord(b"noise", noise.randbytes(300), t + 200)],
        [
            NewRecord(b"16-kib", b"sixteen bytes...", t + 250),
            NewRecord(b"16-kib", b"sixteen bytes..." * KIB, t + 240),
        ],
        [NewRecord(b"1-mib", b"%015d\n" % 1 * (MIB // 16), t + 300)],
        [NewRecord(b"1-mib-noise", noise.randbytes(MIB), t + 301)],
        [NewRecord(b"no-timestamp", b"-1", -1), NewRecord(b"epoch", b"0", 0)],
        # More than 64 records are encoded by a kernel.
        [
            NewRecord(b"many-%d" % i, b"v" * (i % 90), t + i % 7, (("n", b"%d" % i),))
            for i in range(500)
        ],
        [NewRecord(b"many-%d" % i, None if i % 5 else b"", t - i) for i in range(65)],
        [NewRecord(b"last", b"one", t + 500)],
    )
    for batch in batches:
        log.writer.append_records(batch, codec)


for _codec in Codec:

    @shape(f"codec {_codec.name.lower()}")
    def _codec_writer(path: Path, codec: Codec = _codec) -> Written:
        config = {"max_message_bytes": 2 * MIB, "index_interval_bytes": 1000}
        broker, log = broker_at(path, **config)
        with broker:
            _every_shape(log, codec)
        return Written(path, texts(config))

    @shape(f"recompressed to {_codec.name.lower()}")
    def _recompressed_writer(path: Path, codec: Codec = _codec) -> Written:
        name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
        config = {"max_message_bytes": 2 * MIB, "compression_type": name, "segment_bytes": MIB * 3}
        broker, log = broker_at(path, **config)
        with broker:
            for producer in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
                _every_shape(log, producer)
        return Written(path, texts(config))


# -- segments and times --------------------------------------------------------------------------


def fill(log: Log, clock, batches: int, *, seed: int = 1, codec: Codec = Codec.NONE) -> None:
    rng = random.Random(seed)
    for _ in range(batches):
        t = clock.now_ms() + rng.choice((0, 0, 0, -5000, 700))
        log.writer.append_records(
            [
                NewRecord(
                    b"key-%d" % rng.randrange(40),
                    None if rng.random() < 0.1 else rng.randbytes(rng.randrange(60)),
                    t + i,
                )
                for i in range(rng.randrange(1, 6))
            ],
            codec,
        )
        clock.advance(ms=rng.choice((0, 1, 1000)))


SEGMENTS = {"segment_bytes": 2048, "index_interval_bytes": 256}


@shape("several segments")
def _segments(path: Path) -> Written:
    broker, log = broker_at(path, **SEGMENTS)
    with broker:
        fill(log, broker.clock, 150)
    return Written(path, texts(SEGMENTS), broker.clock.now_ms())


@shape("several segments, an index entry for every batch")
def _dense(path: Path) -> Written:
    config = {"segment_bytes": 2048, "index_interval_bytes": 0}
    broker, log = broker_at(path, **config)
    with broker:
        fill(log, broker.clock, 100)
        log.writer.roll()
    return Written(path, texts(config), broker.clock.now_ms())


@shape("several segments, rolled because an index was full")
def _full_index(path: Path) -> Written:
    config = {"segment_index_bytes": 60, "index_interval_bytes": 100}
    broker, log = broker_at(path, **config)
    with broker:
        fill(log, broker.clock, 100)
    return Written(path, texts(config), broker.clock.now_ms())


@shape("LogAppendTime")
def _append_time(path: Path) -> Written:
    config = {**SEGMENTS, "message_timestamp_type": "LogAppendTime"}
    broker, log = broker_at(path, **config)
    with broker:
        fill(log, broker.clock, 80)
        fill(log, broker.clock, 30, codec=Codec.LZ4)
    return Written(path, texts(config), broker.clock.now_ms())


@shape("nothing appended")
def _empty(path: Path) -> Written:
    broker, _ = broker_at(path)
    broker.close()
    return Written(path)


@shape("an empty active segment")
def _rolled(path: Path) -> Written:
    broker, log = broker_at(path)
    with broker:
        fill(log, broker.clock, 10)
        log.writer.roll()
    return Written(path, now_ms=broker.clock.now_ms())


@shape("preallocated segments")
def _preallocated(path: Path) -> Written:
    config = {"preallocate": "true", "segment_bytes": 4096, "index_interval_bytes": 100}
    broker, log = broker_at(path, **config)
    with broker:
        fill(log, broker.clock, 60)
    return Written(path, texts(config), broker.clock.now_ms())


@shape("reopened and appended to")
def _reopened(path: Path) -> Written:
    now_ms = START_MS
    for round_number in range(4):
        broker, log = broker_at(path, now_ms, **SEGMENTS)
        with broker:
            fill(log, broker.clock, 25, seed=round_number)
            now_ms = broker.clock.now_ms() + 5000
    return Written(path, texts(SEGMENTS), now_ms)


# -- replicated batches --------------------------------------------------------------------------


@shape("replicated with holes")
def _holes(path: Path) -> Written:
    broker, log = broker_at(path, **SEGMENTS)
    rng = random.Random(3)
    with broker:
        offset = 5
        for epoch in (0, 0, 0, 4, 4, 9):
            for _ in range(12):
                records = []
                at = offset
                for _ in range(rng.randrange(1, 5)):
                    at += rng.choice((0, 1, 4)) + 1
                    records.append(Record(at, START_MS + at, b"k%d" % at, b"v" * rng.randrange(50)))
                last = at + rng.choice((0, 0, 6))
                batch = build_batch(
                    records, base_offset=offset, last_offset=last, partition_leader_epoch=epoch
                )
                log.writer.append_batches(batch, AppendOrigin.REPLICATION)
                offset = last + 1 + rng.choice((0, 0, 20))
    return Written(path, texts(SEGMENTS))


def replicate_golden(path: Path, case: str, config: dict[str, object]) -> Written:
    broker, log = broker_at(path, **config)
    with broker:
        for source in sorted((GOLDEN / case / "data" / "golden-0").glob("*.log")):
            data = source.read_bytes()
            position = 0
            while position < len(data):
                size = 12 + int.from_bytes(data[position + 8 : position + 12])
                log.writer.append_batches(
                    data[position : position + size], AppendOrigin.REPLICATION
                )
                position += size
    return Written(path, texts(config), START_MS + 10_000)


@shape("replicated transactions")
def _transactions(path: Path) -> Written:
    config = {"segment_bytes": 900, "index_interval_bytes": 200}
    return replicate_golden(path, "transactions", config)


@shape("replicated idempotent producers")
def _idempotent(path: Path) -> Written:
    return replicate_golden(path, "idempotent", {"segment_bytes": 500})


# -- not closed cleanly --------------------------------------------------------------------


def _unclean(path: Path, damage: Callable[[Path, Log], None], **more: object) -> Written:
    """Fill, damage a copy made while the broker is open, and put the copy in the place."""
    config = {**SEGMENTS, **more}
    open_dir = path.with_name(path.name + "-open")
    broker, log = broker_at(open_dir, **config)
    with broker:
        fill(log, broker.clock, 40)
        log.flush()
        fill(log, broker.clock, 20, seed=2)
        shutil.copytree(open_dir, path)
        damage(path / f"{TOPIC}-0", log)
        now_ms = broker.clock.now_ms()
    shutil.rmtree(open_dir)
    return Written(path, texts(config), now_ms)


def _active(folder: Path) -> Path:
    return max(folder.glob("*.log"))


@shape("unclean stop")
def _stopped(path: Path) -> Written:
    return _unclean(path, lambda folder, log: None)


def _torn(keep: int | None) -> Callable[[Path, Log], None]:
    def damage(folder: Path, log: Log) -> None:
        batch = build_batch([Record(log.log_end_offset, START_MS, b"torn", b"x" * 90)])
        with _active(folder).open("ab") as file:
            file.write(batch[: len(batch) if keep is None else keep])

    return damage


for _keep in (1, 11, 17, 18, 60, 61, 100):
    WRITERS[f"unclean stop, torn tail of {_keep} bytes"] = lambda path, keep=_keep: _unclean(
        path, _torn(keep)
    )
WRITERS["unclean stop, a whole batch not yet indexed"] = lambda path: _unclean(path, _torn(None))


def _tail_of(data: bytes) -> Callable[[Path, Log], None]:
    def damage(folder: Path, log: Log) -> None:
        with _active(folder).open("ab") as file:
            file.write(data)

    return damage


WRITERS["unclean stop, 17 zero bytes at the end"] = lambda path: _unclean(path, _tail_of(bytes(17)))
WRITERS["unclean stop, 4000 zero bytes at the end"] = lambda path: _unclean(
    path, _tail_of(bytes(4000))
)
WRITERS["unclean stop, noise at the end"] = lambda path: _unclean(
    path, _tail_of(random.Random(5).randbytes(700))
)
WRITERS["unclean stop, preallocated"] = lambda path: _unclean(
    path, lambda folder, log: None, preallocate="true"
)


def _flip(which: int, share: float) -> Callable[[Path, Log], None]:
    """Damage a byte of a segment, so that a CRC fails there."""

    def damage(folder: Path, log: Log) -> None:
        target = sorted(folder.glob("*.log"))[which]
        data = bytearray(target.read_bytes())
        data[int(len(data) * share)] ^= 0x40
        target.write_bytes(data)

    return damage


for _which, _share in ((-1, 0.6), (-2, 0.4), (1, 0.5), (0, 0.9)):
    WRITERS[f"unclean stop, a flipped bit in segment {_which}"] = (
        lambda path, which=_which, share=_share: _unclean(path, _flip(which, share))
    )


def _without(pattern: str) -> Callable[[Path, Log], None]:
    def damage(folder: Path, log: Log) -> None:
        for path in sorted(folder.glob(pattern)):
            path.unlink()

    return damage


for _what in ("*.index", "*.timeindex", "*index", "*.snapshot", "leader-epoch-checkpoint"):
    WRITERS[f"unclean stop without {_what}"] = lambda path, what=_what: _unclean(
        path, _without(what)
    )


# -- cleaned by this engine ----------------------------------------------------------------------

CLEANED = {**SEGMENTS, "cleanup_policy": "compact", "delete_retention_ms": 1000}


def _clean_and_append(path: Path, codec: Codec, slots: int, **more: object) -> Written:
    config = {**CLEANED, **more}
    now_ms = START_MS
    cleaner = CleanerConfig(dedupe_buffer_bytes=24 * slots)
    for round_number in range(4):
        broker, log = broker_at(path, now_ms, **config)
        with broker:
            fill(log, broker.clock, 50, seed=round_number, codec=codec)
            log.writer.roll()
            now_ms = broker.clock.now_ms() + 700
        engine.clean_once(path, TOPIC, texts(config), now_ms, cleaner)
    return Written(path, texts(config), now_ms)


for _codec in Codec:
    WRITERS[f"cleaned {_codec.name.lower()}"] = lambda path, codec=_codec: _clean_and_append(
        path, codec, 5000
    )
WRITERS["cleaned in partial passes"] = lambda path: _clean_and_append(path, Codec.NONE, 20)
WRITERS["cleaned LogAppendTime"] = lambda path: _clean_and_append(
    path, Codec.NONE, 5000, message_timestamp_type="LogAppendTime"
)


@shape("cleaned by the broker")
def _broker_clean(path: Path) -> Written:
    broker, log = broker_at(path, **CLEANED)
    with broker:
        fill(log, broker.clock, 120)
        broker.clean(TOPIC, force=True, roll=True)
        fill(log, broker.clock, 20, seed=9)
    return Written(path, texts(CLEANED), broker.clock.now_ms())


def _by_version(path: Path, strategy: str) -> Written:
    """Four rounds of late records, each cleaned; Kafka knows no strategy, but reads the rest."""
    versions = {"compaction_strategy": strategy, "compaction_strategy_header": "v"}
    broker, log = broker_at(path, **CLEANED, **versions)
    rng = random.Random(11)
    with broker:
        for _ in range(4):
            for _ in range(60):
                late = broker.clock.now_ms() - rng.choice((0, 0, 3000))
                value = None if rng.random() < 0.2 else rng.randbytes(30)
                header = ("v", late.to_bytes(8, "big"))
                key = b"key-%d" % rng.randrange(20)
                log.writer.append_records(
                    [NewRecord(key, value, late, (header,))], rng.choice(list(Codec))
                )
                broker.clock.advance(ms=rng.choice((0, 100)))
            broker.clean(TOPIC, force=True, roll=True)
    return Written(path, texts(CLEANED), broker.clock.now_ms())


WRITERS["cleaned by timestamp"] = lambda path: _by_version(path, "timestamp")
WRITERS["cleaned by header"] = lambda path: _by_version(path, "header")


@shape("cleaned, then an unclean stop")
def _cleaned_unclean(path: Path) -> Written:
    open_dir = path.with_name(path.name + "-open")
    broker, log = broker_at(open_dir, **CLEANED)
    with broker:
        fill(log, broker.clock, 120)
        broker.clean(TOPIC, force=True, roll=True)
        fill(log, broker.clock, 20, seed=9)
        shutil.copytree(open_dir, path)
        _torn(40)(path / f"{TOPIC}-0", log)
    shutil.rmtree(open_dir)
    return Written(path, texts(CLEANED), broker.clock.now_ms())


# -- random --------------------------------------------------------------------------------------


def _random(path: Path, seed: int) -> Written:
    """A story of the differential driver, lived through by this engine alone."""
    told = story(seed)
    cleaner = CleanerConfig(dedupe_buffer_bytes=told.dedupe_bytes, load_factor=told.load_factor)
    now_ms = START_MS
    for number, each in enumerate(told.rounds):
        config = told.fill_config if number == 0 else told.config
        engine.write(path, told.topic, config, each.start_ms, each.operations)
        for sitting in each.sittings:
            now_ms = sitting.start_ms
            engine.clean_in_turns(path, told.topic, told.config, now_ms, cleaner, sitting.turns)
    return Written(path, told.config, now_ms, told.topic)


for _seed in range(1000, 1012):
    WRITERS[f"random story {_seed}"] = lambda path, seed=_seed: _random(path, seed)
