"""The decoders of `dump` against Kafka's tool: random records of its internal topics."""

import os
import subprocess
from random import Random

import pytest

from logstore.inspect.decoders import (
    DECODER_PACKAGE,
    DEPRECATED_PACKAGE,
    DecoderClass,
    decoder_class,
)
from logstore.inspect.dump import DumpOptions, Stream, dump_files
from logstore.inspect.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
)
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from tests.interop.conftest import unavailable
from tests.support.interop.decoded_records import FLAGS, SEGMENT, pairs, segment_of
from tests.support.interop.dump_tool import kafka_dump
from tests.support.interop.judge import KAFKA_3, KAFKA_4, REQUIRED, Unavailable, build
from tests.support.interop.real_broker import RealBroker

DUMP_TOOL_CLASSES = "-Djudge.dump.classpath="

pytestmark = pytest.mark.interop


def test_share_groups_are_printed_as_by_the_tool_of_kafka_4(kafka4, tmp_path, monkeypatch):
    """The tool of 3.9.2 does not support them yet."""
    (classes,) = (
        part.partition("=")[2] for part in build(KAFKA_4) if part.startswith(DUMP_TOOL_CLASSES)
    )
    (tmp_path / SEGMENT).write_bytes(segment_of(list(pairs(SHARE_GROUP_STATE_TOPIC, Random(1)))))
    tool = ("java", "-cp", classes, "org.apache.kafka.tools.DumpLogSegments")
    output = subprocess.run(
        [*tool, "--share-group-state-decoder", "--files", SEGMENT],
        cwd=tmp_path,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    options = DumpOptions(decoder=SHARE_GROUP_STATE_TOPIC)
    lines = dump_files(ReadOnlyFileSystem(DiskFileSystem()), [SEGMENT], options)
    assert [line.text for line in lines] == output.stdout.decode().split("\n")[:-1]


@pytest.mark.parametrize("topic", FLAGS)
def test_the_text_matches_kafkas_tool(topic, tmp_path, monkeypatch):
    result = [pair for seed in range(20) for pair in pairs(topic, Random(f"{topic}{seed}"))]
    folder = tmp_path / f"{topic}-0"
    folder.mkdir()
    (folder / SEGMENT).write_bytes(segment_of(result))
    name = f"{folder.name}/{SEGMENT}"
    try:
        output = kafka_dump([FLAGS[topic]], [name], tmp_path)
    except Unavailable as error:
        if REQUIRED:
            pytest.fail(f"LOGSTORE_INTEROP_REQUIRED=1, but: {error}")
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    lines = dump_files(ReadOnlyFileSystem(DiskFileSystem()), [name], DumpOptions(decoder=topic))
    assert [line.text for line in lines] == output.output.split("\n")[:-1]


@pytest.mark.parametrize("package", (DECODER_PACKAGE, DEPRECATED_PACKAGE))
@pytest.mark.parametrize(
    ("key", "value"),
    (
        ("IntegerDecoder", "LongDecoder"),
        ("LongDecoder", None),
        (None, "IntegerDecoder"),
        ("StringDecoder", "StringDecoder"),
    ),
)
def test_decoders_by_class(package, key, value, tmp_path, monkeypatch):
    result = [(b"\0\0\0\7 and more", b"\xff" * 8), (None, b"12345678"), (b"\x80" * 8, None)]
    flags, names = [], []
    for name, chosen in (("key", key), ("value", value)):
        flags += [] if chosen is None else [f"--{name}-decoder-class", f"{package}{chosen}"]
    for number in range(2):
        names.append(f"{number * 10:020}.log")
        (tmp_path / names[-1]).write_bytes(segment_of(result, number * 10))
    try:
        output = kafka_dump(flags, names, tmp_path)
    except Unavailable as error:
        unavailable(error)
    monkeypatch.chdir(tmp_path)
    classes = tuple(decoder_class(package + (each or "StringDecoder")) for each in (key, value))
    if package == DEPRECATED_PACKAGE:  # the default goes by its new name
        classes = tuple(
            made if given else DecoderClass()
            for made, given in zip(classes, (key, value), strict=True)
        )
    options = DumpOptions(decoder_classes=classes)
    lines = dump_files(ReadOnlyFileSystem(DiskFileSystem()), names, options)
    assert [line.text for line in lines] == output.output.split("\n")[:-1]


def test_records_of_kafkas_coordinators_and_controller(scratch, monkeypatch):
    try:
        broker = RealBroker.of(KAFKA_3, scratch)
    except Unavailable as error:
        unavailable(error)
    try:
        broker.start()
        broker.traffic(seed=3, rounds=12)
        broker.stop()
    finally:
        broker.kill()
    monkeypatch.chdir(broker.data_dir)
    fs = ReadOnlyFileSystem(DiskFileSystem())
    for topic in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, CLUSTER_METADATA_TOPIC):
        result = sorted(
            str(path.relative_to(broker.data_dir))
            for pattern in ("*.log", "*.checkpoint")
            for path in broker.data_dir.glob(f"{topic}-*/{pattern}")
            if path.stat().st_size
        )
        if topic == CLUSTER_METADATA_TOPIC:
            result.append("bootstrap.checkpoint")
        output = kafka_dump([FLAGS[topic]], result, broker.data_dir)
        lines = dump_files(fs, result, DumpOptions(decoder=topic))
        report = [line.text for line in lines if line.stream is Stream.OUTPUT]
        assert report == output.output.split("\n")[:-1]
        assert sum("payload: " in text for text in report) > 10
