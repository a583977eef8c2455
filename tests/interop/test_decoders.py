"""The decoders of `dump` beside Kafka's own tool: random records of its own topics."""

from random import Random

import pytest

from logstore.inspect.dump import DumpOptions, dump_files
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from tests.support.interop.decoded_records import FLAGS, SEGMENT, pairs, segment_of
from tests.support.interop.dump_tool import kafka_dump
from tests.support.interop.judge import REQUIRED, Unavailable

pytestmark = pytest.mark.interop


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
