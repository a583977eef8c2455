"""What only a process of its own shows: imports, pipes, signals, terminals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import GOLDEN, lines

PROGRAM = [sys.executable, "-c", "from logstore.cli.main import main; main()"]
HEAVY = {"numpy", "numba", "rich", "lz4", "zstandard", "cramjam", "importlib.metadata", "pyspark"}


def call(*arguments, data_dir, **options):
    environment = {**os.environ, "LOGSTORE_DATA_DIR": str(data_dir)}
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def modules_after(*arguments, data_dir):
    """Run the program with those arguments and return the modules it loaded."""
    script = (
        "import sys, json\n"
        "from logstore.cli.main import main\n"
        "try:\n"
        f"    main({[str(argument) for argument in arguments]!r})\n"
        "except SystemExit as done:\n"
        "    assert not done.code, done.code\n"
        "print(json.dumps(list(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LOGSTORE_DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    (
        ("--help",),
        ("inspect", "--help"),
        ("topic", "list"),
        ("topic", "describe", "golden"),
        ("inspect",),
        ("inspect", "golden", "--format", "json"),
        ("inspect", "golden", "--batches", "--format", "jsonl"),
        ("inspect", "golden", "--records"),
        ("read", "golden", "--max-records", "3"),
        ("offsets", "golden", "--time", "max-timestamp"),
        ("retain", "golden", "--dry-run"),
    ),
    ids=" ".join,
)
def test_small_work_loads_nothing_heavy(arguments):
    loaded = modules_after(*arguments, data_dir=GOLDEN / "segments" / "data")
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("name", ("generate", "verify", "run"))
def test_the_help_of_a_registered_command_loads_little(name):
    """No more than what finds it: PySpark takes a second, and need not be there."""
    loaded = modules_after("workload", name, "--help", data_dir=GOLDEN)
    assert loaded & HEAVY <= {"importlib.metadata"}


def test_help_imports_no_command():
    loaded = modules_after("--help", data_dir=GOLDEN / "segments" / "data")
    assert not any(name.startswith("logstore.cli.cmd_") for name in loaded)
    assert "logstore.broker" not in loaded


def test_small_append_needs_no_kernel(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines({"key": "k", "value": "v"}))
    loaded = modules_after("append", "t", path, "--create", data_dir=tmp_path / "data")
    assert loaded & HEAVY == set()


def test_exit_codes_reach_the_shell(tmp_path):
    assert call("inspect", data_dir=tmp_path / "none").returncode == 2
    assert call("read", "golden", "--from", 999, data_dir=GOLDEN / "holes" / "data").returncode == 1
    done = call("topic", "list", data_dir=GOLDEN / "holes" / "data")
    assert (done.returncode, done.stderr) == (0, "")


def test_round_trip_through_a_pipe(tmp_path):
    source = call("read", "golden", "--format", "jsonl", data_dir=GOLDEN / "codec-gzip" / "data")
    larger = ("--create", "--config", "max.message.bytes=2000000")
    done = call("append", "golden", *larger, data_dir=tmp_path, input=source.stdout)
    assert done.returncode == 0, done.stderr
    copied = call("read", "golden", "--format", "jsonl", data_dir=tmp_path)
    strip = [{**json.loads(line), "offset": None} for line in source.stdout.splitlines()]
    assert [{**json.loads(line), "offset": None} for line in copied.stdout.splitlines()] == strip


@pytest.mark.parametrize("output", ("table", "json", "jsonl"))
def test_reader_that_has_seen_enough_ends_it_in_silence(tmp_path, output):
    text = lines(*({"key": str(n), "value": "x" * 500} for n in range(3000)))
    call("append", "t", "--create", data_dir=tmp_path, input=text)
    process = subprocess.Popen(
        [*PROGRAM, "read", "t", "--format", output, "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


def test_interrupt_keeps_what_was_appended(tmp_path):
    process = subprocess.Popen(
        [*PROGRAM, "append", "t", "--create", "--data-dir", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background of a shell hands its children a deaf ear.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdin is not None
    process.stdin.write(lines({"value": "a"}, {"value": "b"}))
    process.stdin.flush()
    while not (tmp_path / "t-0").exists():
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; appended 2 records" in told
    assert "Traceback" not in told
    found = call("inspect", "t", "--format", "json", data_dir=tmp_path)
    assert json.loads(found.stdout)["records"] == 2
    assert json.loads(found.stdout)["recovery"] == []


def on_terminal(*arguments, data_dir):
    """Run the program with standard error (and output) on a terminal; return what it showed."""
    master, slave = pty.openpty()
    environment = {**os.environ, "LOGSTORE_DATA_DIR": str(data_dir), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)], stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(60) == 0, shown
    return shown.decode()


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_only(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*({"key": str(n % 50), "value": "x" * 20} for n in range(20_000))))
    data_dir = tmp_path / "data"
    configs = ("--config", "cleanup.policy=compact")
    assert "appending" in on_terminal("append", "t", path, "--create", *configs, data_dir=data_dir)
    shown = on_terminal("clean", "t", "--force", "--roll", data_dir=data_dir)
    assert "mapping t-0" in shown
    assert "rewriting t-0" in shown
    piped = call("append", "t", path, data_dir=data_dir)
    assert (piped.stdout.count("\n"), piped.stderr) == (1, "")


def test_recovery_of_several_partitions_is_shown_on_a_terminal_only(tmp_path):
    call("topic", "create", "t", "--partitions", 12, data_dir=tmp_path)
    roll = ("roll", "t", "--partition", 3)
    assert "recovering" not in on_terminal(*roll, data_dir=tmp_path)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    shown = on_terminal(*roll, data_dir=tmp_path)
    assert "recovering" in shown
    assert "12/12" in shown
    (tmp_path / ".kafka_cleanshutdown").unlink()
    piped = call(*roll, data_dir=tmp_path)
    assert (piped.stdout.count("\n"), piped.stderr) == (1, "")


def test_colours_on_a_terminal_only(tmp_path):
    data_dir = GOLDEN / "segments" / "data"
    assert "\x1b[33m" in on_terminal("inspect", "golden", data_dir=data_dir)
    assert "\x1b" not in call("inspect", "golden", data_dir=data_dir).stdout


def test_output_encoding_without_blocks_and_arrows(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    listing = (("inspect", "golden"), ("read", "golden"), ("inspect",), ("retain", "--dry-run"))
    for arguments in (*listing, ("offsets", "golden")):
        done = subprocess.run(
            [*PROGRAM, *arguments, "--data-dir", str(GOLDEN / "segments" / "data")],
            env=environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
