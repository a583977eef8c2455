"""Lines that start processes or compile kernels, with fakes in place of the slow work."""

import gc
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from logstore.bench.measuring import Sample
from logstore.bench.micro import default_calls, resources, starting, worker
from logstore.bench.micro.cleaning import CleanRun, clean_with_logstore
from logstore.bench.micro.logs import KIB, MIB, LogShape, make_log
from logstore.bench.micro.setting import Setting
from logstore.bench.report.result import Figures
from tests.support.bench.clock import StepClock


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path, total_bytes=MIB, repeats=3, warmups=2, has_peers=False)


@pytest.fixture
def calls(monkeypatch):
    """Return the calls of the fake processes; call number n takes n s, half of it CPU time."""
    made = []

    def answer(*arguments, environment=None):
        made.append((arguments, environment and dict(environment)))
        return {
            "cpu_s": len(made) / 2,
            "wall_s": float(len(made)),
            "grown_bytes": len(made) * 64 * MIB,
        }

    for module in (default_calls, resources, starting):
        monkeypatch.setattr(module, "worker", answer)
    return made


def lines_of(module, setting, name):
    (job,) = [job for job in module.jobs() if name in job.names]
    return [
        (
            *(line.name, line.title, line.unit, line.higher_is_better),
            *(line.here, line.peer, line.peer_name, line.facts),
        )
        for line in job.run(setting)
    ]


@pytest.fixture
def logs(monkeypatch):
    """Return the shapes of the logs that were generated; log number n has n MB."""
    made = []

    def make(shape, path):
        path.mkdir(parents=True)
        made.append((path.name, shape))
        return len(made) * 1_000_000

    monkeypatch.setattr(resources, "make_log", make)
    monkeypatch.setattr(resources, "copy_log", lambda source, target: target)
    return made


# --- start ------------------------------------------------------------------------------------


def test_the_first_cleaning_is_measured_without_compiled_kernels(setting, calls, tmp_path):
    assert lines_of(starting, setting, "start/first-cleaning") == [
        (
            *("start/first-cleaning", "first cleaning of 1,000 records in memory, without compiled"
              " kernels", "s", False),
            *(Figures([0.5, 1.0], [1.0, 2.0]), None, "", {}),
        )
    ]  # fmt: skip
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert calls == [(("first_cleaning",), environment)] * 2


def test_the_first_broker_is_measured_after_a_warm_up(setting, calls, tmp_path):
    assert lines_of(starting, setting, "start/broker") == [
        (
            *("start/broker", "import logstore, open a broker in memory, append and read ten"
              " records, wall time", "ms", False),
            *(Figures(wall := [2e3, 3e3, 4e3, 5e3, 6e3], wall), None, "", {}),
        )
    ]  # fmt: skip
    assert [arguments for arguments, _ in calls] == [("first_records",)] * 6
    prefixes = [environment.pop("PYTHONPYCACHEPREFIX") for _, environment in calls]
    assert len(set(prefixes)) == 1
    assert Path(prefixes[0]).parent == tmp_path
    assert [environment for _, environment in calls] == [{"PYTHONDONTWRITEBYTECODE": ""}] * 6


@pytest.mark.parametrize("repeats", (1, 2))
def test_slow_lines_are_measured_at_least_once(setting, calls, repeats):
    setting.repeats = repeats
    lines_of(starting, setting, "start/first-cleaning")
    assert len(calls) == 1


def test_a_process_is_measured_by_its_own_cpu_time(monkeypatch):
    times = iter([(1.0, 2.0), (4.0, 2.5)])

    def getrusage(who):
        assert who == "children"
        user, system = next(times)
        return SimpleNamespace(ru_utime=user, ru_stime=system)

    def run(command, **options):
        started.append((command, options["env"]["LANGUAGE"], options["env"]["ADDED"]))
        del options["env"]
        assert options == {"stdout": -3, "stderr": -3, "check": True}

    started = []
    fake = SimpleNamespace(RUSAGE_CHILDREN="children", getrusage=getrusage)
    monkeypatch.setattr(starting, "resource", fake)
    monkeypatch.setattr(starting, "time", StepClock())
    monkeypatch.setattr(starting.subprocess, "run", run)
    monkeypatch.setenv("LANGUAGE", "kept")
    assert starting.process(("tool",), {"ADDED": "yes"})() == Sample(3.5, 1.0)
    assert started == [(("tool",), "kept", "yes")]


def test_the_answer_of_a_process_is_its_last_line(monkeypatch):
    def run(command, **options):
        assert options["env"]["LANGUAGE"] == "kept"
        assert options["env"]["ADDED"] == "yes"
        assert options["check"]
        return subprocess.CompletedProcess(command, 0, f"warning\n{json.dumps(command)}\n")

    monkeypatch.setenv("LANGUAGE", "kept")
    monkeypatch.setattr(starting.subprocess, "run", run)
    answer = starting.worker("cold", "x", environment={"ADDED": "yes"})
    assert answer == [*starting.WORKER, "cold", "x"]


# --- threads and memory -----------------------------------------------------------------------


def test_the_first_cleaning_is_compared_by_threads(setting, calls, logs, tmp_path):
    """Contestants alternate: 1, 2 and 4 threads, twice as a warm-up, then three times."""
    walls = {1: (7, 10, 13), 2: (8, 11, 14), 4: (9, 12, 15)}  # of call number n, n seconds
    speeds = {
        threads: Figures([1 / wall for wall in each], [1 / wall for wall in each])
        for threads, each in walls.items()
    }
    cpu_ms = {threads: [wall * 500.0 for wall in each] for threads, each in walls.items()}
    assert lines_of(resources, setting, "threads/cold-2") == [
        (
            f"threads/cold-{threads}",
            f"first cleaning in a new process, eight partitions, {threads} threads vs. one, kernels"
            " precompiled, wall time",
            *("MB/s", True, speeds[threads], speeds[1], "one thread"),
            {"log_bytes": 1_000_000, "cpu_ms": cpu_ms[threads], "cpu_ms_one": cpu_ms[1]},
        )
        for threads in (2, 4)
    ]
    copy, environment = str(tmp_path / "cold" / "copy"), {"LOGSTORE_KERNELS": "compiled"}
    assert calls == [(("cold", copy, threads), environment) for threads in "124"] * 5
    shape = LogShape(100, 0.12, 100, MIB // 32, partitions=8, codec="lz4", mixed=True)
    assert logs == [("log", shape)]
    assert list(tmp_path.iterdir()) == []


def test_the_kernels_are_always_in_their_cache(setting, calls, logs):
    setting.warmups = 0
    lines_of(resources, setting, "threads/cold-4")
    assert [arguments[2] for arguments, _ in calls] == [*"124"] * 4


def test_threads_are_compared_with_processes(setting, logs, monkeypatch, tmp_path):
    cleaned = []

    def clean(data_dir, *, threads):
        cleaned.append((data_dir, threads))
        return CleanRun(Sample(9.0, 8.0 / threads), {})

    def processes(home):
        cleaned.append(home)
        return Sample(7.0, 5.0)

    monkeypatch.setattr(resources, "clean_with_logstore", clean)
    monkeypatch.setattr(resources, "_clean_in_two_processes", processes)
    at = {wall: Figures([3 / wall] * 3, [3 / wall] * 3) for wall in (4.0, 5.0, 8.0)}
    facts = {"log_bytes": 3_000_000}  # of the third log
    assert lines_of(resources, setting, "threads/2") == [
        (
            *("threads/2", "two partitions, two threads vs. one, wall time", "MB/s", True),
            *(at[4.0], at[8.0], "one thread", facts),
        ),
        (
            "threads/processes",
            "two partitions, two processes vs. one thread: the machine's limit, wall time",
            *("MB/s", True, at[5.0], at[8.0], "one thread", facts),
        ),
    ]
    home = tmp_path / "threads"
    assert cleaned == [(home / "copy", 1), (home / "copy", 2), home] * 5
    assert logs == [
        ("warm", LogShape(KIB, 0.15, 16, MIB)),
        ("half", LogShape(100, 0.12, 100, MIB // 2)),
        ("log", LogShape(100, 0.12, 100, MIB // 2, partitions=2)),
    ]
    assert list(tmp_path.iterdir()) == []


def test_clean_in_two_processes_take_the_time_of_the_slower_one(monkeypatch, tmp_path):
    """Both are ready before either begins."""
    monkeypatch.setattr(
        resources, "copy_log", lambda source, target: f"{source.name}→{target.name}"
    )
    events = []

    class Child:
        def __init__(self, command, **pipes):
            assert pipes == {"stdin": -1, "stdout": -1, "text": True}
            self.stdin = self.stdout = self
            self.number = len(events)
            events.append(command[len(starting.WORKER) :])

        def readline(self):
            events.append(f"{self.number} is ready")
            return "ready\n"

        def write(self, text):
            assert text == "go\n"

        def flush(self):
            events.append(f"{self.number} begins")

        def communicate(self):
            return json.dumps({"cpu_s": 1 + self.number, "wall_s": 5 - 2 * self.number}), None

    monkeypatch.setattr(resources.subprocess, "Popen", Child)
    assert resources._clean_in_two_processes(tmp_path) == Sample(3, 5)
    assert events == [
        ["clean", "warm→warm-0", "half→half-0"],
        ["clean", "warm→warm-1", "half→half-1"],
        *("0 is ready", "1 is ready", "0 begins", "1 begins"),
    ]


def test_memory_is_measured_without_the_map(setting, calls, logs, monkeypatch, tmp_path):
    """The log is at most 32 times the size of the setting; a bit for each dirty offset."""
    monkeypatch.setattr(resources, "MAP_BYTES", 2 * MIB)
    shape = LogShape(KIB, 0.15, 16, 32 * MIB)
    over = resources.OffsetMap(2 * MIB, max_entries=shape.records).slots.nbytes
    over = (over + shape.records // 8) / MIB
    assert lines_of(resources, setting, "memory/256MiB") == [
        (
            "memory/256MiB",
            "memory for cleaning 256MiB, without the map and one bit per dirty offset",
            *("MiB", False, Figures([64 - over, 128 - over, 192 - over]), None, ""),
            {"grown_mib": [64.0, 128.0, 192.0], "records": shape.records},
        )
    ]
    assert logs == [("warm", LogShape(KIB, 0.15, 16, MIB)), ("log", shape)]
    copies = [str(tmp_path / "memory" / name) for name in "ab"]
    assert calls == [(("memory", *copies, str(2 * MIB)), None)] * 3
    assert list(tmp_path.iterdir()) == []


def test_the_size_of_a_log_for_memory_is_that_of_its_label(setting, calls, logs, monkeypatch):
    """The bits are limited by the cleaner, and no figure is below zero."""
    monkeypatch.setattr(resources, "OffsetMap", lambda size, max_entries: SimpleNamespace(
        slots=SimpleNamespace(nbytes=64 * MIB)))  # fmt: skip
    monkeypatch.setattr(resources, "WINNERS_MAX", 16 * MIB)
    setting.total_bytes = MIB * 256
    ((*_, here, _, _, _),) = lines_of(resources, setting, "memory/64MiB")
    assert logs[1] == ("log", LogShape(KIB, 0.15, 16, 64 * MIB))
    bits = logs[1][1].records // 8 / MIB
    assert here == Figures([0.0, 64 - bits, 128 - bits])
    resources.WINNERS_MAX = 800
    ((*_, here, _, _, _),) = lines_of(resources, setting, "memory/64MiB")
    assert here == Figures([4 * 64 - 64 - 100 / MIB, 256 - 100 / MIB, 320 - 100 / MIB])


# --- defaults ---------------------------------------------------------------------------------


def test_the_first_million_is_cleaned_without_compiled_kernels(setting, calls, tmp_path):
    """With this size of logs, a million records are 3,906."""
    assert lines_of(default_calls, setting, "defaults/first-cleaning") == [
        (
            *("defaults/first-cleaning", "first cleaning pass over 3,906 records, without compiled"
              " kernels", "s", False),
            *(Figures([0.5, 1.0], [1.0, 2.0]), None, "", {"records": 3906}),
        )
    ]  # fmt: skip
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert calls == [(("first_pass", str(tmp_path / "default-million")), environment)] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "title", "homes"),
    (
        ("first", "no kernels and no byte code", 3),
        ("again", "later runs", 1),
    ),
)
def test_a_users_test_is_measured_as_a_process(setting, monkeypatch, tmp_path, name, title, homes):
    runs = []

    def process(command, environment):
        assert (tmp_path / "default-tests" / "test_of_a_user.py").is_file()

        def run():
            runs.append((command, dict(environment)))
            return Sample(len(runs), 2 * len(runs))

        return run

    monkeypatch.setattr(default_calls, "process", process)
    warmups = 1 if name == "again" else 0
    judged = [float(number + warmups) for number in (1, 2, 3)]
    assert lines_of(default_calls, setting, f"defaults/pytest-{name}") == [
        (
            f"defaults/pytest-{name}",
            f"a test with the pytest plugin, process start to exit, {title}",
            *("s", False, Figures(judged, [2 * each for each in judged]), None, "", {}),
        )
    ]
    assert len(runs) == 3 + warmups
    for variable in ("PYTHONPYCACHEPREFIX", "NUMBA_CACHE_DIR"):
        assert len({environment.pop(variable) for _, environment in runs}) == homes
    home = str(tmp_path / "default-tests")
    for command, environment in runs:
        assert command[1:] == (
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "logstore.testing.plugin"),
            *("--rootdir", home, home),
        )
        assert environment == {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    (("explain", "explain"), ("inspect", "inspect"), ("dry-run", "clean --dry-run")),
)
def test_commands_on_many_partitions_are_measured(setting, monkeypatch, tmp_path, name, arguments):
    data_dir = tmp_path / "default-partitions"
    runs = []

    def process(command, environment):
        logs = [len(list(folder.glob("*.log"))) for folder in data_dir.glob("bench-*")]
        assert logs == [default_calls.SEGMENTS + 1] * 100  # the active segment is empty

        def run():
            runs.append((command, dict(environment)))
            return Sample(len(runs), 2 * len(runs))

        return run

    monkeypatch.setattr(default_calls, "process", process)
    assert lines_of(default_calls, setting, f"defaults/{name}") == [
        (
            *(f"defaults/{name}", f"logstore {arguments} of 100 partitions with 7 segments,"
              " process start to exit, no kernels", "ms/partition", False),
            *(Figures([20.0, 30.0, 40.0], [40.0, 60.0, 80.0]), None, "", {}),
        )
    ]  # fmt: skip
    command = (*starting.PROGRAM, *arguments.split(), "--data-dir", str(data_dir))
    assert [each for each, _ in runs] == [(*command, "--format", "json")] * 4
    assert len({environment.pop("NUMBA_CACHE_DIR") for _, environment in runs}) == 1
    assert {"PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"} == set(runs[0][1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "peer", "share"),
    (
        ("check", "check {}", "a plain read", 1),
        ("export", "export --data-dir {} --out {}.parquet --overwrite", "pyarrow alone", 4),
    ),
)
def test_commands_that_read_a_log_are_compared_with_the_least_they_have_to_do(
    setting, monkeypatch, tmp_path, name, arguments, peer, share
):
    monkeypatch.setattr("logstore.bench.measuring.time", StepClock())
    commands = []
    home = tmp_path / f"default-{name}"

    def process(command, environment=None):
        def run():
            commands.append(command)
            subprocess.run(command, check=True, capture_output=True)
            return Sample(0.5, 2.0)

        return run

    monkeypatch.setattr(default_calls, "process", process)
    (line,) = lines_of(default_calls, setting, f"defaults/{name}")
    size = line[7]["log_bytes"]
    assert MIB * 0.9 < size * share < MIB * 1.1
    here, there = [size / 1e6 / 0.5] * 3, [size / 1e6 / 0.25] * 3
    assert line == (
        *(f"defaults/{name}", f"logstore {name}, process start to exit, vs. {peer}", "MB/s", True),
        *(Figures(here, [size / 1e6 / 2.0] * 3), Figures(there, [size / 1e6] * 3)),
        *(peer, {"log_bytes": size}),
    )
    assert set(commands) == {(*starting.PROGRAM, *arguments.format(home, home).split())}
    assert list(tmp_path.iterdir()) == []


def test_a_users_test_passes(logstore_broker):
    names = {}
    exec(default_calls.TEST_MODULE, names)
    names["test_of_a_user"](logstore_broker)


def test_without_pytest_its_lines_are_left_out(setting, monkeypatch):
    monkeypatch.setattr(default_calls, "find_spec", lambda name: None)
    assert lines_of(default_calls, setting, "defaults/pytest-first") == []


@pytest.mark.parametrize("is_collected", (False, True))
def test_default_calls_say_whether_garbage_is_collected(setting, is_collected):
    was_enabled = gc.isenabled()
    (gc.enable if is_collected else gc.disable)()
    try:
        for name, count in (("send", 100), ("append_many", 390)):
            ((*_, facts),) = lines_of(default_calls, setting, f"defaults/{name}")
            assert facts == {"records": count, "has_collection": is_collected}
    finally:
        (gc.enable if was_enabled else gc.disable)()


# --- the tasks of processes -------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    make_log(LogShape(100, 0.2, 10, total_bytes=64 * KIB, partitions=2), tmp_path / "log")
    return str(tmp_path / "log")


@pytest.fixture
def steps(monkeypatch):
    monkeypatch.setattr("logstore.bench.measuring.time", StepClock())
    monkeypatch.setattr("logstore.jit.compile_always", lambda: None)


ONE_STEP = {"cpu_s": 0.25, "wall_s": 1.0}


@pytest.mark.usefixtures("steps")
def test_tasks_measure_their_work_once(log):
    assert worker.WORK["first_cleaning"]() == ONE_STEP
    assert worker.WORK["first_records"]() == ONE_STEP
    before = size_of(log)
    assert worker.WORK["first_pass"](log) == ONE_STEP
    assert size_of(log) < before
    others = {"memory", "clean", "cold"}
    assert set(worker.WORK) == {"first_cleaning", "first_pass", "first_records", *others}


def size_of(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*.log"))


@pytest.mark.usefixtures("steps")
def test_a_cold_cleaning_uses_the_threads(log, monkeypatch):
    used = []
    monkeypatch.setattr(
        "logstore.bench.micro.cleaning.clean_with_logstore",
        lambda path, threads: (
            used.append((path, threads)) or clean_with_logstore(path, threads=threads)
        ),
    )
    assert worker.cold(log, "2") == ONE_STEP
    assert used == [(Path(log), 2)]


@pytest.mark.usefixtures("steps")
def test_a_warm_cleaning_waits_for_a_line(tmp_path, monkeypatch):
    for name in ("warm", "cold"):
        make_log(LogShape(100, 0.2, 10, total_bytes=64 * KIB), tmp_path / name)
    before = size_of(tmp_path / "cold")
    said = []

    def readline():
        assert said == ["ready\n", "flushed"]
        assert size_of(tmp_path / "warm") < before == size_of(tmp_path / "cold")
        return "go\n"

    pipes = SimpleNamespace(
        stdout=SimpleNamespace(write=said.append, flush=lambda: said.append("flushed")),
        stdin=SimpleNamespace(readline=readline),
    )
    monkeypatch.setattr(worker, "sys", pipes)
    assert worker.clean(str(tmp_path / "warm"), str(tmp_path / "cold")) == ONE_STEP
    assert size_of(tmp_path / "cold") < before


@pytest.mark.usefixtures("steps")
def test_growth_of_memory_is_that_of_the_second_cleaning(tmp_path, monkeypatch):
    for name in ("warm", "large"):
        make_log(LogShape(100, 0.2, 10, total_bytes=64 * KIB), tmp_path / name)
    before = size_of(tmp_path / "large")
    monkeypatch.setattr(worker, "_reset_peak", lambda: reads() or 1000)
    monkeypatch.setattr(worker, "_peak_kib", lambda: 1300)
    warm, large = tmp_path / "warm", tmp_path / "large"

    def reads():
        assert size_of(warm) < before == size_of(large)

    answer = worker.memory(str(warm), str(large), str(2 * MIB))
    assert answer == {"grown_bytes": 300 << 10, "entries": answer["entries"], **ONE_STEP}
    assert 0 < answer["entries"] < 1000
    assert size_of(large) < before


def test_the_peak_of_memory_is_read_from_the_system(monkeypatch, tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t  3000 kB\nVmRSS:\t  2000 kB\n")
    paths = {"/proc/self/status": status, "/proc/self/clear_refs": tmp_path / "clear_refs"}
    monkeypatch.setattr(worker, "Path", paths.__getitem__)
    assert (worker._peak_kib(), worker._reset_peak()) == (3000, 2000)
    assert (tmp_path / "clear_refs").read_text() == "5"


@pytest.mark.parametrize(("platform", "kib"), (("linux", 4096), ("darwin", 4)))
def test_without_these_files_the_peak_is_the_process_maximum(monkeypatch, tmp_path, platform, kib):
    monkeypatch.setattr(worker, "Path", lambda name: tmp_path)
    fake = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=4096))
    monkeypatch.setattr(worker, "resource", fake)
    monkeypatch.setattr(worker, "sys", SimpleNamespace(platform=platform))
    assert (worker._peak_kib(), worker._reset_peak()) == (kib, kib)
