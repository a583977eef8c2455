"""Kernels as Python and compiled: the same source, which of the two, and where it is kept."""

import logging
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import numpy as np
import pytest

from logstore import jit
from logstore.cleaner.kernels import (
    assemble,
    classify,
    facts,
    hashing,
    mapping,
    offsets,
    ranges,
    slots,
    table,
    versions,
    winners,
)
from logstore.cli.show.messages import Recovery, show_messages, stop_messages
from logstore.jit import files, policy, twins
from logstore.jit.instructions import Instruction
from logstore.jit.twins import KernelOperation
from logstore.record import kernels as record_kernels
from logstore.spark.datasource import kernels as datasource_kernels
from tests.support.world.locks import HeldLock

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_COMPILER = pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="nothing is compiled")

KERNEL_MODULES = (
    *(assemble, classify, facts, hashing, mapping, offsets, ranges, slots, table, versions),
    *(winners, record_kernels, datasource_kernels),
)


def sum_of(data):
    total = np.uint64(2**64 - 1)
    for value in data:
        total += np.uint64(value)
    return total


@pytest.fixture
def room(monkeypatch, tmp_path):
    """Return a maker of kernels of a room of their own, in a process that compiles when it pays.

    Their compiled form is kept apart: no module of that name could be imported to load it again.
    """
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    files.cache_dir.cache_clear()
    monkeypatch.setattr(policy, "MODE", policy.AUTO)
    monkeypatch.setattr(policy, "groups", {})
    yield lambda function=sum_of: jit.kernel(
        FunctionType(function.__code__, {**globals(), "__name__": "toy.kernels"})
    )
    files.cache_dir.cache_clear()


# --- as Python, or compiled -------------------------------------------------------------------


def test_small_work_runs_as_python_and_wraps_in_silence(room):
    kernel = room()
    assert not jit.compile_if_worthwhile(kernel, 0.01)
    assert kernel(np.arange(4, dtype=np.uint8)) == 5
    assert kernel.signatures == []


def test_small_work_adds_up_until_compiling_would_have_taken_as_long(room, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "logstore.jit")
    kernel = room()
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: False)
    monkeypatch.setattr(policy, "COMPILE_SECONDS", 5.0)
    answers = [jit.compile_if_worthwhile(kernel, 1.0) for _ in range(8)]
    assert answers == [False] * 5 + [True] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "compiling the kernels of toy, about 5 s, once on this machine; `logstore warmup` does it"
        " in advance"
    ]


def test_large_work_does_not_start_in_python(room, monkeypatch):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: False)
    monkeypatch.setattr(policy, "COMPILE_SECONDS", 5.0)
    kernel = room()
    assert not jit.compile_if_worthwhile(kernel, 0.1, 4.8)
    assert jit.compile_if_worthwhile(kernel, 0.1, 4.9)


def test_cached_kernels_are_loaded_earlier_and_without_a_message(room, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "logstore.jit")
    kernel = room()
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    monkeypatch.setattr(policy, "COMPILE_SECONDS", 5.0)
    assert [jit.compile_if_worthwhile(kernel, 0.3) for _ in range(3)] == [False, True, True]
    assert caplog.records == []


def test_files_exist_in_a_cache_that_has_them(room, monkeypatch, tmp_path):
    found = room().files
    assert not found.exist()
    (tmp_path / found.index).touch()
    assert found.exist()
    with monkeypatch.context() as patched:
        patched.setattr(files, "cache_dir", lambda: None)
        assert not found.exist()


def test_a_group_is_loaded_by_the_first_that_offers_it(room, monkeypatch):
    lock = HeldLock(policy._policy_lock)
    monkeypatch.setattr(policy, "_policy_lock", lock)
    group = policy.Group("toy")
    calls = []
    assert group.load_by(lambda: calls.append(1))
    assert not group.load_by(lambda: calls.append(2))
    assert group.compile()
    assert not group.compile()
    assert (calls, group.is_loading, group.is_compiled) == ([1], True, False)
    other = policy.Group("other")
    assert [other.compile() for _ in range(2)] == [True, False]
    assert not other.load_by(lambda: calls.append(3))
    assert other.load is None
    assert (lock.entered, lock.depth) == (7, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_decides_while_a_thread_of_its_parent_does(room):
    """In both, a decision may be interrupted by a signal handler that makes another."""
    has_decided, may_end = threading.Event(), threading.Event()

    def decide():
        with policy._policy_lock:
            assert policy.Group("toy").compile()
            has_decided.set()
            may_end.wait()

    thread = threading.Thread(target=decide, daemon=True)
    thread.start()
    assert has_decided.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        with policy._policy_lock:
            os._exit(0 if policy.Group("toy").compile() else 1)
    may_end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_the_twin_of_an_instruction_is_the_twin_of_its_kernel(room):
    kernel = room()
    of_kernel, of_function = Instruction("a", kernel), Instruction("b", sum_of)
    assert type(of_kernel.twin({})) is FunctionType
    assert of_kernel.twin({}).__code__ is sum_of.__code__
    plain = kernel.plain
    assert of_kernel.twin({}) is kernel.twin({}) is plain
    assert of_function.twin({}) is sum_of
    assert (of_kernel.plain, of_function.plain) == (plain, sum_of)


@WITHOUT_COMPILER
def test_a_kernel_runs_compiled_only_in_the_thread_that_loads_it(room, loads, monkeypatch):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    kernel, data, during = room(), np.arange(4, dtype=np.uint8), []

    def exercise():
        kernel(data)
        kernel(data)
        during.append(kernel._run)

    jit.load_in_background(kernel, exercise, loads.append)
    loads.pop()()
    assert during == [kernel._choose]


def test_nothing_looks_for_files_before_it_may_matter(room, monkeypatch):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: pytest.fail("looked"))
    assert not jit.compile_if_worthwhile(room(), policy.LOAD_SECONDS)


def test_rooms_are_compiled_apart(room, monkeypatch):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    kernel = room()
    other = jit.kernel(FunctionType(sum_of.__code__, {**globals(), "__name__": "other.kernels"}))
    assert jit.compile_if_worthwhile(kernel, 100)
    assert not jit.compile_if_worthwhile(other, 0.1)


def test_a_room_follows_one_that_is_compiled_and_no_other(room):
    leader = room()
    follower = jit.kernel(FunctionType(sum_of.__code__, {**globals(), "__name__": "other.kernels"}))
    jit.follow(follower, leader)
    assert not jit.compile_if_worthwhile(follower, 0)
    jit.compile_if_worthwhile(leader, 100)
    jit.follow(follower, leader)
    assert jit.compile_if_worthwhile(follower, 0)


def test_all_kernels_are_compiled_on_request(room):
    kernel = room()
    jit.compile_always()
    assert jit.compile_if_worthwhile(kernel, 0)
    assert jit.compile_if_worthwhile(room(), 0)


def test_nothing_is_compiled_where_numba_is_switched_off(room, monkeypatch):
    monkeypatch.setattr(policy, "MODE", policy.PYTHON)
    kernel = room()
    assert not jit.compile_if_worthwhile(kernel, 1e9)
    jit.compile_always()
    assert not jit.compile_if_worthwhile(kernel, 1e9)


@pytest.mark.parametrize(
    ("variables", "mode"),
    (
        ({}, "auto"),
        ({"LOGSTORE_KERNELS": "compiled"}, "compiled"),
        ({"LOGSTORE_KERNELS": "python"}, "python"),
        ({"LOGSTORE_KERNELS": "what"}, "auto"),
        ({"LOGSTORE_KERNELS": "compiled", "NUMBA_DISABLE_JIT": "1"}, "python"),
        ({"NUMBA_DISABLE_JIT": "0"}, "auto"),
    ),
)
def test_variables_decide(variables, mode, monkeypatch):
    for name in ("LOGSTORE_KERNELS", "NUMBA_DISABLE_JIT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert policy._mode() == mode


def test_twins_call_twins_all_the_way_down():
    """In a plain run no kernel decides again, and no instruction is compiled."""
    plain = record_kernels.read_record.plain
    assert type(plain) is FunctionType
    for name in plain.__code__.co_names:
        assert not isinstance(plain.__globals__.get(name), KernelOperation), name
    other = record_kernels.varint_size.plain
    assert other.__globals__ is plain.__globals__, "a module has one world of twins"


# --- loading in the background ----------------------------------------------------------------


@pytest.fixture
def loads():
    """Return the list that collects the background work, which no thread runs."""
    return []


def test_kernels_run_as_python_until_they_are_loaded(room, loads, monkeypatch):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    kernel, exercised = room(), []
    jit.load_in_background(
        kernel, lambda: exercised.append(jit.compile_if_worthwhile(kernel, 0)), loads.append
    )
    assert [jit.compile_if_worthwhile(kernel, 100) for _ in range(3)] == [False] * 3
    assert kernel(np.arange(4, dtype=np.uint8)) == 5
    assert kernel.signatures == []
    (load,) = loads
    load()
    assert exercised == [True]  # there it is compiled already
    assert jit.compile_if_worthwhile(kernel, 0)


@WITHOUT_COMPILER
def test_the_exercise_compiles_the_functions_that_the_work_calls(room, loads, monkeypatch):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    kernel, data = room(), np.arange(4, dtype=np.uint8)
    jit.load_in_background(kernel, lambda: kernel(data), loads.append)
    loads.pop()()
    compiled = kernel._outer
    assert len(kernel.signatures) == 1
    assert kernel(data) == 5
    assert kernel._run is compiled
    assert len(kernel.signatures) == 1


def test_kernels_without_cache_are_compiled_in_the_background_once_that_pays(
    room, loads, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "logstore.jit")
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: False)
    kernel = room()
    jit.load_in_background(kernel, lambda: None, loads.append)
    assert loads == []
    for _ in range(3):
        assert not jit.compile_if_worthwhile(kernel, 100)
    assert len(loads) == len(caplog.records) == 1


def test_a_room_is_loaded_once(room, loads, monkeypatch):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    kernel = room()
    for _ in range(2):
        jit.load_in_background(kernel, lambda: None, loads.append)
    assert len(loads) == 1
    loads[0]()
    jit.load_in_background(kernel, lambda: None, loads.append)
    assert len(loads) == 1


def test_kernels_that_cannot_be_loaded_run_as_python_with_a_message(
    room, loads, monkeypatch, caplog
):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    kernel = room()
    jit.load_in_background(kernel, lambda: 1 // 0, loads.append)
    loads[0]()
    assert not jit.compile_if_worthwhile(kernel, 100)
    assert kernel(np.arange(4, dtype=np.uint8)) == 5
    assert len(loads) == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("the kernels of toy cannot be loaded: ZeroDivision")


def test_without_a_thread_the_work_continues_as_python(room, monkeypatch, caplog):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)

    def no_more_threads(_):
        raise RuntimeError("can't start new thread")

    kernel = room()
    jit.load_in_background(kernel, lambda: None, no_more_threads)
    assert not jit.compile_if_worthwhile(kernel, 100)
    (record,) = caplog.records
    assert "can't start new thread" in record.getMessage()


@pytest.mark.parametrize("mode", (policy.PYTHON, policy.COMPILED))
def test_nothing_is_loaded_in_the_background_unless_work_decides(room, loads, monkeypatch, mode):
    monkeypatch.setattr(files.KernelFiles, "exist", lambda self: True)
    kernel = room()
    monkeypatch.setattr(policy, "MODE", mode)
    jit.load_in_background(kernel, lambda: None, loads.append)
    assert loads == []


# --- the parts of a kernel --------------------------------------------------------------------


def made(source, **names):
    world = {"np": np, "__name__": "toy.kernels", **names}
    exec(source, world)
    return world["f"]


def test_a_fingerprint_covers_the_calls_and_globals_of_a_kernel():
    inner = jit.Kernel(made("def f(x):\n    return x + 1"), plain=None, inline=False)
    edited = jit.Kernel(made("def f(x):\n    return x + 2"), plain=None, inline=False)
    inlined = jit.Kernel(made("def f(x):\n    return x + 1"), plain=None, inline=True)
    source = "def f(x):\n    return inner(x) * FACTOR"
    outer = partial(made, source, FACTOR=3)
    kernels = [
        jit.Kernel(function, plain=None, inline=False)
        for function in (
            outer(inner=inner),
            outer(inner=edited),
            outer(inner=inlined),
            outer(inner=inner, FACTOR=4),
            outer(inner=inner, FACTOR=np.zeros(2)),
            outer(inner=inner, FACTOR=np.ones(2)),
            outer(inner=jit.load_u64),
        )
    ]
    assert len({kernel.files.fingerprint for kernel in kernels}) == len(kernels)
    again = jit.Kernel(outer(inner=inner), plain=None, inline=False)
    assert again.files.fingerprint == kernels[0].files.fingerprint


def test_a_fingerprint_covers_the_format(monkeypatch):
    before = twins.fingerprint(sum_of)
    monkeypatch.setattr(twins, "FORMAT", twins.FORMAT + 1)
    assert twins.fingerprint(sum_of) != before


def test_every_kernel_of_the_project_has_a_fingerprint_of_its_own():
    kernels = {
        value
        for module in KERNEL_MODULES
        for value in vars(module).values()
        if isinstance(value, jit.Kernel)
    }
    assert len(kernels) > 20
    assert len({kernel.files.fingerprint for kernel in kernels}) == len(kernels)


def test_places_of_compiled_code(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    assert files.cache_dir.__wrapped__() == tmp_path / "given"
    monkeypatch.setenv("NUMBA_CACHE_DIR", "given")  # stays valid if the process changes directory
    monkeypatch.chdir(tmp_path)
    assert files.cache_dir.__wrapped__() == tmp_path / "given"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert files.cache_dir.__wrapped__() == ROOT / "logstore/jit/__pycache__"
    read_only = tmp_path / "a file"
    read_only.touch()
    monkeypatch.setattr(files, "__file__", str(read_only / "jit/files.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert files.cache_dir.__wrapped__() == tmp_path / "cache/logstore"
    monkeypatch.setenv("XDG_CACHE_HOME", str(read_only))
    assert files.cache_dir.__wrapped__() is None


# --- processes --------------------------------------------------------------------------------


def start(code, **environment):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


CLEANING = """
import sys
from logstore import Broker, VirtualClock
with Broker(clock=VirtualClock()) as broker:
    broker.create_topic("t", configs={"cleanup.policy": "compact"})
    broker.append_many("t", [(b"%d" % (n % 100), b"value") for n in range(1000)])
    broker.roll("t")
    report = broker.clean("t", force=True).to_json()
    print(report["cleaned"][0]["messages_written"], len(list(broker.read("t"))))
print("numba" in sys.modules)
"""


def test_the_first_cleaning_of_a_test_compiles_nothing_and_waits_for_no_compiler(tmp_path):
    ran = start(CLEANING, LOGSTORE_KERNELS="auto", NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert output_of(ran).split() == ["100", "100", "False"]
    assert not (tmp_path / "cache").exists()


EXERCISE = """
from logstore import Broker
from logstore.record import kernels, preload
called = kernels.decode_records, kernels.find_bounds, kernels.encode_batches
preload._exercise()
signatures = [each.signatures for each in called]
assert all(signatures), signatures
with Broker() as broker:
    broker.create_topic("t")
    for codec in ("none", "lz4"):
        records = [(b"%d" % n, None if n % 7 else b"v", None, (("h", b"1"),)) for n in range(200)]
        broker.append_many("t", records, compression=codec, batch_records=100)
        broker.append_many("t", [each[:2] for each in records], compression=codec)
    assert len(list(broker.read("t"))) == 800
assert [each.signatures for each in called] == signatures, "loaded while somebody waited"
print(*(each._function.__name__ for each in called[0].group.kernels if each.signatures))
"""


@WITHOUT_COMPILER
def test_the_exercise_of_batches_covers_all_that_python_calls_for_them():
    """By the types of the arguments: of others a kernel would be loaded while a client waits."""
    called = output_of(start(EXERCISE, LOGSTORE_KERNELS="compiled")).split()
    assert called == ["decode_records", "find_bounds", "encode_batches"]


SHARED = """
import numpy as np
from logstore.record import kernels
assert kernels.varint_size(np.int64(300)) == 2
stats = kernels.varint_size._outer.stats
print(sum(stats.cache_misses.values()))
"""


@WITHOUT_COMPILER
def test_processes_share_what_one_of_them_compiles(tmp_path):
    environment = {"LOGSTORE_KERNELS": "compiled", "NUMBA_CACHE_DIR": str(tmp_path)}
    compiled = [int(output_of(p)) for p in [start(SHARED, **environment) for _ in range(2)]]
    assert sorted(compiled) == [0, 1]
    assert len(list(tmp_path.glob("*.nbc"))) == 1


def test_the_command_line_reports_compilation(capsys):
    show_messages(Recovery.COMPUTED)
    try:
        policy.logger.info("compiling the kernels of toy, about %d s", 5)
    finally:
        stop_messages()
    policy.logger.info("nobody hears of this")
    assert capsys.readouterr() == ("", "note: compiling the kernels of toy, about 5 s\n")


# --- bound to its last arguments ----------------------------------------------------------------


def least_of(data, factor):
    least = data[0]
    for value in data:
        least = min(least, value)
    return least * factor


def test_a_bound_kernel_returns_the_same_as_the_kernel(room):
    bound = jit.Bound(room(least_of), 3)
    assert bound(np.array([5, 4, 9], np.int64)) == 12
    assert bound(np.array([-1, 4], np.int64)) == -3


@WITHOUT_COMPILER
def test_a_bound_kernel_looks_at_kinds_of_arguments_once(room, monkeypatch):
    kernel = room(least_of)
    jit.compile_always()
    bound = jit.Bound(kernel, 3)
    assert bound(np.array([5, 4, 9], np.int64)) == 12
    monkeypatch.setattr(kernel, "_run", lambda *_: pytest.fail("looked again"))
    assert bound(np.array([7], np.int64)) == 21


@WITHOUT_COMPILER
def test_a_kernel_that_is_bound_again_looks_at_no_kinds_of_arguments(room, monkeypatch):
    kernel = room(least_of)
    jit.compile_always()
    assert jit.Bound(kernel, 3)(np.array([5, 4, 9], np.int64)) == 12
    monkeypatch.setattr(kernel, "_run", lambda *_: pytest.fail("looked again"))
    monkeypatch.setattr(kernel._outer, "typeof_pyval", lambda *_: pytest.fail("looked again"))
    assert jit.Bound(kernel, 5)(np.array([7], np.int64)) == 35


def first_of_second_row(data, factor):
    return data[1, 0] * factor


@WITHOUT_COMPILER
def test_rows_with_gaps_never_use_code_compiled_for_rows_without(room):
    kernel = room(first_of_second_row)
    jit.compile_always()
    bound = jit.Bound(kernel, 3)
    rows = np.arange(6, dtype=np.int64).reshape(2, 3)
    for _ in range(2):
        assert bound(rows) == 9
        assert bound(rows[:, :2]) == 9
        assert bound(rows.reshape(3, 2)) == 6


def scaled_by(data, factor):
    return data[0] * factor.values[0]


class Factor(NamedTuple):
    values: object


@WITHOUT_COMPILER
def test_named_tuples_of_other_arrays_never_use_code_compiled_for_the_first(room):
    kernel = room(scaled_by)
    jit.compile_always()
    one = np.array([5], np.int64)
    for _ in range(2):
        assert jit.Bound(kernel, Factor(np.array([3], np.int64)))(one) == 15
        assert jit.Bound(kernel, Factor(np.array([2.5])))(one) == 12.5
        assert jit.Bound(kernel, Factor(np.array([255], np.uint8)))(one) == 1275


@WITHOUT_COMPILER
@pytest.mark.parametrize(
    "other",
    (
        np.array([200, 3], np.uint8),
        np.array([2.5, 7.0]),
        np.arange(9, dtype=np.int64)[4::2],
        np.frombuffer(bytes(range(8)), np.int64),
    ),
    ids=("narrower", "fractions", "with gaps", "read-only"),
)
def test_arrays_of_another_type_never_use_code_compiled_for_the_first(room, other):
    kernel = room(least_of)
    jit.compile_always()
    bound = jit.Bound(kernel, 3)
    one = np.array([5, 4, 9], np.int64)
    for _ in range(2):
        assert bound(one) == 12
        assert bound(other) == other.min() * 3


# --- borrowed arrays --------------------------------------------------------------------------


@WITHOUT_COMPILER
def test_a_kernel_counts_no_references_to_its_arrays(room, monkeypatch):
    """numba's way: an object for each array and call, which is then taken apart."""
    kernel = room(least_of)
    jit.compile_always()
    array = np.array([7, 5], np.int64)
    assert kernel(array, 2) == 10
    from numba.core.runtime import _nrt_python

    _nrt_python.memsys_enable_stats()
    try:
        before = _nrt_python.memsys_get_stats_mi_alloc()
        assert [kernel(array, 3), kernel(array[:1], 2)] == [15, 14]
        assert _nrt_python.memsys_get_stats_mi_alloc() == before
    finally:
        _nrt_python.memsys_disable_stats()
    assert sys.getrefcount(array) == 2


def tail_of(data):
    return data[1:]


def tails_of(data, factor):
    return factor, (factor, data[1:])


@WITHOUT_COMPILER
@pytest.mark.parametrize("function", (tail_of, tails_of))
def test_a_kernel_that_returns_a_borrowed_array_is_refused(room, function):
    kernel = room(function)
    jit.compile_always()
    array = np.array([7, 5], np.int64)
    for _ in range(2):
        with pytest.raises(TypeError, match=f"{function.__name__} returns an array"):
            kernel(*(array, 2)[: function.__code__.co_argcount])


def put_first(data):
    data[0] = 1


@WITHOUT_COMPILER
def test_a_kernel_does_not_write_to_a_read_only_array(room):
    kernel = room(put_first)
    jit.compile_always()
    array = np.zeros(2, np.int64)
    kernel(array)
    assert array[0] == 1
    array.flags.writeable = False
    with pytest.raises(Exception, match="readonly"):
        kernel(array)
