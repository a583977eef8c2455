"""Behavior that needs a separate process: imports, pipes, signals, terminals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time

import pytest

from tests.cli.conftest import GOLDEN, lines

PROGRAM = [sys.executable, "-c", "from logstore.cli.main import main; main()"]
HEAVY = {"numpy", "numba", "rich", "lz4", "zstandard", "cramjam", "importlib.metadata", "pyspark"}
NOT_FOR_LOOKING = {
    "logstore.analysis.reports",
    "logstore.faults.disk",
    "logstore.storage.loading.damage",
    "logstore.storage.loading.surveyed",
    "logstore.storage.log.retention",
    "logstore.record.survey",
    "logstore.faults.crash",
    "logstore.faults.faultfs",
    "logstore.security",
    "logstore.cleaner.manager",
    "logstore.jit",
}
"""Modules for commands that change data, meet damage or fail."""
NEEDED = {
    "--batches": {"logstore.record.survey"},
    "--records": {"logstore.record.survey"},
    "inspect": {"logstore.cleaner.manager", "logstore.storage.log.retention"},
    "retain": {
        "logstore.analysis.reports",
        "logstore.cleaner.manager",
        "logstore.storage.log.retention",
    },
}
"""The modules that a command or option needs: batches of damaged files are listed one by one,
retention includes a cleaning pass, and a verdict needs the decisions of both."""


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
    """Run the program with some arguments and return the loaded modules."""
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
        env={**os.environ, "LOGSTORE_DATA_DIR": str(data_dir), "COLUMNS": ""},
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
def test_small_commands_load_no_heavy_module(arguments):
    loaded = modules_after(*arguments, data_dir=GOLDEN / "segments" / "data")
    assert loaded & HEAVY == set()
    needed = set().union(*(NEEDED.get(argument, ()) for argument in arguments))
    assert loaded & (NOT_FOR_LOOKING - needed) == set()


@pytest.mark.parametrize("name", ("generate", "verify", "run"))
def test_the_help_of_a_registered_command_loads_little(name):
    """Only the modules to find it: PySpark takes a second to load and may be absent."""
    loaded = modules_after("workload", name, "--help", data_dir=GOLDEN)
    assert loaded & HEAVY <= {"importlib.metadata"}


def test_help_imports_no_command():
    loaded = modules_after("--help", data_dir=GOLDEN / "segments" / "data")
    assert not any(name.startswith("logstore.cli.commands.") for name in loaded)
    assert not {"logstore.broker", "logstore.runtime"} & loaded


def test_small_work_is_never_searched_for_cycles():
    script = """
import atexit, gc, sys
from logstore.cli.entry import main
before = sum(generation["collections"] for generation in gc.get_stats())

@atexit.register
def tell():
    after = sum(generation["collections"] for generation in gc.get_stats())
    print(after - before, len(gc.get_objects()), file=sys.stderr)

main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, "inspect", "--config", "cleanup.policy=compact"],
        env={**os.environ, "LOGSTORE_DATA_DIR": str(GOLDEN / "segments" / "data")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    searches, searched_at_the_end = map(int, done.stderr.split())
    assert searches == 0
    assert searched_at_the_end < 1000


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


def test_interrupt_keeps_appended_records(tmp_path):
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*PROGRAM, "append", "t", "--create", "--data-dir", str(tmp_path)],
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background of a shell passes an ignored signal to its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # It reads the pipe again only after it has processed the lines that it took before.
    for part in (lines({"value": "a"}, {"value": "b"}), "{"):
        os.write(writing, part.encode())
        deadline = time.monotonic() + 60
        while fcntl.ioctl(reading, termios.FIONREAD, bytes(4)) != bytes(4):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "nobody reads"
            time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    os.close(reading)
    os.close(writing)
    assert process.returncode == 130
    assert "interrupted; appended 2 records" in told
    assert "Traceback" not in told
    found = call("inspect", "t", "--format", "json", data_dir=tmp_path)
    assert json.loads(found.stdout)["records"] == 2
    assert json.loads(found.stdout)["recovery"] == []


STARTED = """
import os, signal, sys
module = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # the suite may run in the background

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from logstore.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    "module",
    (
        "logstore.cli.streams",
        "logstore.cli.main",
        "click",
        "logstore.cli.times",
        "logstore.cli.commands.read",
        "logstore.broker",
        "logstore.storage.log",
    ),
)
def test_an_interrupt_while_the_program_loads_ends_it_in_silence(module):
    done = subprocess.run(
        [sys.executable, "-c", STARTED, module, "read", "golden"],
        env={**os.environ, "LOGSTORE_DATA_DIR": str(GOLDEN / "segments" / "data")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    # A shell reports 130 for both.
    assert done.returncode in (-signal.SIGINT, 130)
    assert (done.stdout, done.stderr.strip()) == ("", "")


def test_ignored_interrupts_stay_ignored():
    script = STARTED.replace("signal.default_int_handler", "signal.SIG_IGN")
    done = subprocess.run(
        [sys.executable, "-c", script, "click", "topic", "list"],
        env={**os.environ, "LOGSTORE_DATA_DIR": str(GOLDEN / "segments" / "data")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def in_shell(line, data_dir):
    """Run a line of sh in which `logstore` is the program."""
    program = f"{sys.executable} -c 'from logstore.cli.entry import main; main()'"
    return subprocess.run(
        ["sh", "-c", line.replace("logstore", program)],
        env={**os.environ, "LOGSTORE_DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "command",
    (
        *("read golden", "read golden --format jsonl", "topic list", "check", "--help"),
        "inspect --config cleanup.policy=compact",
    ),
)
def test_a_closed_output_is_named(command):
    done = in_shell(f"logstore {command} >&-", GOLDEN / "segments" / "data")
    assert (done.returncode, done.stderr) == (3, "error: standard output is closed\n")


def test_a_closed_input_is_named(tmp_path):
    done = in_shell("logstore append t --create <&-", tmp_path)
    assert (done.returncode, done.stderr) == (3, "error: standard input is closed\n")


def test_appended_records_stay_although_the_report_cannot_be_written(tmp_path):
    """The free descriptor must not become a segment's."""
    line = """echo '{"key": "k", "value": "v"}' | logstore append t --create >&- 2>&-"""
    assert in_shell(line, tmp_path).returncode == 3
    found = call("read", "t", "--format", "jsonl", data_dir=tmp_path)
    assert [record["value"] for record in map(json.loads, found.stdout.splitlines())] == ["v"]
    assert call("check", data_dir=tmp_path).returncode == 0


@pytest.mark.parametrize(("command", "code"), (("topic list", 0), ("read nope", 2)))
def test_a_closed_standard_error_changes_nothing_else(command, code):
    done = in_shell(f"logstore {command} 2>&-", GOLDEN / "segments" / "data")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_closed_pipe_of_help_is_not_a_failure():
    line = "{ sleep 0.2; logstore --help; echo $? >&2; } | true"
    assert in_shell(line, GOLDEN).stderr == "0\n"


@pytest.mark.parametrize("shell", ("bash", "zsh", "fish"))
@pytest.mark.parametrize(
    ("words", "offered", "withheld"),
    (
        ("logstore re", {"read", "retain"}, {"topic"}),
        ("logstore topic d", {"describe", "delete"}, {"list"}),
        ("logstore read --iso", {"--isolation"}, {"--until"}),
        ("logstore read --isolation read_", {"read_committed", "read_uncommitted"}, {"earliest"}),
        ("logstore clean --f", {"--force", "--format"}, {"--roll"}),
    ),
)
def test_a_shell_completes(shell, words, offered, withheld):
    given = {"_LOGSTORE_COMPLETE": f"{shell}_complete", "COMP_WORDS": words}
    given["COMP_CWORD"] = words.split()[-1] if shell == "fish" else str(len(words.split()) - 1)
    done = subprocess.run(
        PROGRAM, env={**os.environ, **given}, capture_output=True, text=True, check=True, timeout=60
    )
    found = {
        word for line in done.stdout.splitlines() for word in line.replace("\t", ",").split(",")
    }
    assert offered <= found
    assert not withheld & found


def test_the_bash_snippet_enables_completion():
    source = subprocess.run(
        PROGRAM,
        env={**os.environ, "_LOGSTORE_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    done = subprocess.run(
        ["bash", "-c", f"{source.stdout}\ncomplete -p logstore"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_logstore_completion" in done.stdout


def test_a_bar_shows_no_question_mark_before_it_has_a_speed():
    from logstore.cli.show.progress import BYTES, _new_progress

    progress = _new_progress(BYTES)
    progress.add_task("copying", total=10, detail="")
    shown = "".join(str(column(progress.tasks[0])) for column in progress.columns)
    assert "copying" in shown
    assert "?" not in shown


def on_terminal(*arguments, data_dir):
    """Run the program with standard error (and output) on a terminal; return the terminal's
    text."""
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


@pytest.mark.parametrize("arguments", (("--help",), ("topic", "list")))
def test_commands_that_open_no_log_load_no_log_module(arguments):
    loaded = modules_after(*arguments, data_dir=GOLDEN / "segments" / "data")
    names = [name.split(".") for name in loaded if name.startswith("logstore.")]
    folders = {part for name in names for part in name[1:3]}
    assert folders & {"log", "segment", "index", "producers", "cleaner"} == set()


NOT_FOR_TOPICS = {
    "shutil",
    "google_crc32c",
    "logstore.broker.broker",
    "logstore.analysis.reports",
    "logstore.faults.rules",
    "logstore.storage.loading.damage",
    "logstore.manager.manager",
    "logstore.record.batch",
    "logstore.record.records",
    "logstore.record.survey",
}
"""Modules that take long, and have to do with records or with changes."""


def test_a_list_of_topics_loads_no_record_module():
    loaded = modules_after("topic", "list", data_dir=GOLDEN / "segments" / "data")
    assert loaded & NOT_FOR_TOPICS == set()
