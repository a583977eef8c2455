"""`logstore dump`: options, streams, exit codes; unit/inspect/test_dump.py checks the text."""

from __future__ import annotations

import pytest

from logstore import Broker
from tests.cli.conftest import GOLDEN, tree_hash
from tests.support.interop import dump_tool

FIRST = "golden-0/00000000000000000000"


@pytest.mark.parametrize("case", dump_tool.cases())
def test_program_prints_the_same_as_kafkas_tool(run, case, monkeypatch):
    flags, files = dump_tool.cases()[case]
    monkeypatch.chdir(GOLDEN)
    listed = run("dump", *flags, "--files", ",".join(files))
    recorded = (dump_tool.RECORDED / f"{case}.out").read_bytes().decode()
    reports = (dump_tool.RECORDED / f"{case}.err").read_bytes().decode()
    assert listed.stdout == recorded
    assert listed.stderr.replace(str(GOLDEN), dump_tool.WORKING_DIR) == reports
    assert run("dump", *files, *flags) == listed


def test_dump_changes_nothing(run, golden):
    directory = golden("transactions")
    before = tree_hash(directory)
    files = sorted(path for path in (directory / "golden-0").iterdir())
    run("dump", *files, "--print-data-log")
    assert tree_hash(directory) == before


def test_s240_torn_tail_is_reported_on_standard_output(run, golden):
    directory = golden("segments")
    path = sorted((directory / "golden-0").glob("*.log"))[-1]
    with path.open("ab") as file:
        file.write(b"\1" * 37)
    shown = run("dump", path)
    assert shown.stdout.splitlines()[-1] == f"Found 37 invalid bytes at the end of {path.name}"


def test_a_file_that_cannot_be_dumped_is_an_error_and_the_rest_follows(run, golden):
    directory = golden("segments")
    path = directory / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(bytes(data))
    shown = run("dump", path, directory / f"{FIRST}.timeindex", code=1)
    assert shown.stderr.startswith(f"error: {path} at position 0: magic 9 is not 2\n")
    assert "timestamp: " in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((), "Missing argument 'FILE...'"),
        (("none.log",), "none.log: no such file"),
        (("{dir}",), "is a directory"),
    ),
)
def test_wrong_usage(run, golden, arguments, message):
    directory = golden("idempotent")
    refused = run("dump", *(each.format(dir=directory) for each in arguments), code=2)
    assert message in refused.stderr
    assert not refused.stdout


def test_other_formats_are_declined_with_a_note(run, golden):
    path = golden("idempotent") / f"{FIRST}.log"
    shown = run("dump", path, "--format", "json")
    assert shown.stdout == run("dump", path).stdout
    assert shown.stderr == (
        "note: dump prints only kafka-dump-log's format; use inspect --batches for JSON\n"
    )


def test_decoders_by_class(run, data_dir):
    with Broker(data_dir) as broker:
        broker.create_topic("t")
        broker.append("t", key=b"\0\0\0\7", value=b"v", timestamp=1)
    path = data_dir / "t-0" / f"{0:020}.log"
    facts = "| offset: 0 CreateTime: 1 keySize: 4 valueSize: 1 sequence: -1 headerKeys: []"
    shown = run("dump", path, "--key-decoder-class", "kafka.serializer.IntegerDecoder").stdout
    lines = shown.splitlines()
    assert lines[1] == (
        "kafka.serializer.IntegerDecoder is deprecated."
        " Please use org.apache.kafka.tools.api.IntegerDecoder instead"
    )
    assert lines[-1] == f"{facts} key: 7 payload: v"
    assert "is deprecated" not in run("dump", path, "--key-decoder-class", "IntegerDecoder").stdout
    refused = run("dump", path, "--value-decoder-class", "org.example.Mine", code=2)
    assert "unsupported decoder org.example.Mine; supported are StringDecoder" in refused.stderr
