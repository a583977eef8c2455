"""The decoders of `dump` beside Kafka's own tool: random records of its own topics."""

import os
import subprocess
from random import Random

import pytest

from logstore.inspect.dump import DumpOptions, dump_files
from logstore.inspect.internal_topics import SHARE_GROUP_STATE_TOPIC
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from tests.support.interop.decoded_records import FLAGS, SEGMENT, pairs, segment_of
from tests.support.interop.dump_tool import kafka_dump
from tests.support.interop.judge import KAFKA_4, REQUIRED, Unavailable, build

DUMP_TOOL_CLASSES = "-Djudge.dump.classpath="

pytestmark = pytest.mark.interop


def test_share_groups_are_told_as_by_the_tool_of_kafka_4(kafka4, tmp_path, monkeypatch):
    """The tool of 3.9.2 does not know them yet."""
    (classes,) = (
        part.partition("=")[2] for part in build(KAFKA_4) if part.startswith(DUMP_TOOL_CLASSES)
    )
    (tmp_path / SEGMENT).write_bytes(segment_of(list(pairs(SHARE_GROUP_STATE_TOPIC, Random(1)))))
    tool = ("java", "-cp", classes, "org.apache.kafka.tools.DumpLogSegments")
    said = subprocess.run(
        [*tool, "--share-group-state-decoder", "--files", SEGMENT],
        cwd=tmp_path,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    options = DumpOptions(decoder=SHARE_GROUP_STATE_TOPIC)
    lines = dump_files(ReadOnlyFileSystem(DiskFileSystem()), [SEGMENT], options)
    assert [line.text for line in lines] == said.stdout.decode().split("\n")[:-1]


@pytest.mark.parametrize("topic", FLAGS)
def test_the_text_is_that_of_kafkas_tool(topic, tmp_path, monkeypatch):
    found = [pair for seed in range(20) for pair in pairs(topic, Random(f"{topic}{seed}"))]
    folder = tmp_path / f"{topic}-0"
    folder.mkdir()
    (folder / SEGMENT).write_bytes(segment_of(found))
    name = f"{folder.name}/{SEGMENT}"
    try:
        said = kafka_dump([FLAGS[topic]], [name], tmp_path)
    except Unavailable as error:
        if REQUIRED:
            pytest.fail(f"LOGSTORE_INTEROP_REQUIRED=1, but: {error}")
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    lines = dump_files(ReadOnlyFileSystem(DiskFileSystem()), [name], DumpOptions(decoder=topic))
    assert [line.text for line in lines] == said.output.split("\n")[:-1]
