"""Kernels that several threads compile, load and call at the same time. Calls are counted."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest

from logstore import jit
from logstore.jit import files, policy
from logstore.jit.twins import KernelOperation

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_COMPILER = pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="nothing is compiled")
THREADS = 4


def sum_of(data):
    total = np.int64(0)
    for value in data:
        total += value
    return total


def product_of(left, right):
    return left * right


def make_kernel(function, **names):
    world = {**globals(), "__name__": "toy.kernels", **names}
    return jit.kernel(FunctionType(function.__code__, world))


@pytest.fixture
def rooms(monkeypatch, tmp_path):
    """Empty the list of rooms, and keep compiled code apart."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    files.cache_dir.cache_clear()
    monkeypatch.setattr(policy, "groups", {})
    yield
    files.cache_dir.cache_clear()


@pytest.fixture
def compiled(rooms, monkeypatch):
    monkeypatch.setattr(policy, "MODE", policy.COMPILED)


@pytest.fixture
def entered(monkeypatch):
    """Count the calls of `compile`, which numba's table in C makes when it finds no function."""
    from logstore.jit.compiler import KernelDispatcher

    counts, compile_ = Counter(), KernelDispatcher.compile

    def count(self, signature):
        counts[tuple(map(str, signature))] += 1
        return compile_(self, signature)

    monkeypatch.setattr(KernelDispatcher, "compile", count)
    return counts


def run_together(*actions):
    """Run each action in a thread, all at the same time; return results or errors in order."""
    outcomes = [None] * len(actions)
    barrier = threading.Barrier(len(actions))

    def run(number, action):
        barrier.wait(60)
        try:
            outcomes[number] = action()
        except Exception as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return outcomes


def meet_in_compile(monkeypatch, parties=THREADS):
    """Make the first `parties` threads that find no compiled function wait for each other."""
    from logstore.jit.compiler import KernelDispatcher

    barrier, compile_ = threading.Barrier(parties), KernelDispatcher.compile
    waiting = [None] * parties

    def meet(self, signature):
        if waiting:
            waiting.pop()
            barrier.wait(60)
        return compile_(self, signature)

    monkeypatch.setattr(KernelDispatcher, "compile", meet)


# --- compiling and loading ----------------------------------------------------------------------


@WITHOUT_COMPILER
@pytest.mark.parametrize(
    ("function", "others", "arguments", "result"),
    (
        (sum_of, (np.zeros(1),), (np.arange(4),), 6),
        (product_of, (2.0, 3), (2, 3), 6),
    ),
    ids=("with an array", "with numbers only"),
)
def test_a_function_that_threads_compile_at_the_same_time_is_found_by_all_later_calls(
    compiled, entered, monkeypatch, function, others, arguments, result
):
    kernel = make_kernel(function)
    kernel(*others)  # so that one dispatcher is there
    entered.clear()
    meet_in_compile(monkeypatch)
    assert run_together(*[lambda: kernel(*arguments)] * THREADS) == [result] * THREADS
    assert set(entered.values()) == {THREADS}
    entered.clear()
    assert [kernel(*arguments) for _ in range(3)] == [result] * 3
    assert entered == {}
    assert len(kernel.signatures) == 2


@WITHOUT_COMPILER
def test_threads_compile_for_arguments_of_different_types_at_the_same_time(
    compiled, entered, monkeypatch
):
    kernel = make_kernel(sum_of)
    arrays = [np.arange(4, dtype=dtype) for dtype in (np.int64, np.uint8, np.float64, np.int32)]
    meet_in_compile(monkeypatch)
    assert run_together(*[lambda data=data: kernel(data) for data in arrays]) == [6] * 4
    entered.clear()
    assert [kernel(data) for data in arrays] == [6] * 4
    assert entered == {}


@WITHOUT_COMPILER
def test_a_compilation_that_fails_in_one_thread_leaves_the_others_right(
    compiled, entered, monkeypatch
):
    from logstore.jit.compiler import KernelDispatcher

    kernel, failures = make_kernel(sum_of), [MemoryError()]
    compile_or_load = KernelDispatcher._compile_or_load

    def fail_first(self, signature):
        if failures:
            raise failures.pop()
        return compile_or_load(self, signature)

    monkeypatch.setattr(KernelDispatcher, "_compile_or_load", fail_first)
    meet_in_compile(monkeypatch)
    data = np.arange(4)
    outcomes = run_together(*[lambda: kernel(data)] * THREADS)
    assert sorted(map(repr, outcomes)) == ["6"] * (THREADS - 1) + ["MemoryError()"]
    entered.clear()
    assert kernel(data) == 6
    assert entered == {}


@WITHOUT_COMPILER
def test_a_kernel_that_is_called_while_its_own_thread_compiles_it_is_inserted_once(
    compiled, entered, monkeypatch
):
    """A signal handler can do that."""
    from logstore.jit.compiler import KernelDispatcher

    kernel, data, nested = make_kernel(sum_of), np.arange(4), []
    compile_or_load = KernelDispatcher._compile_or_load

    def interrupted(self, signature):
        if not nested:
            nested.append(None)
            nested.append(kernel(data))
        return compile_or_load(self, signature)

    monkeypatch.setattr(KernelDispatcher, "_compile_or_load", interrupted)
    assert kernel(data) == nested.pop() == 6
    entered.clear()
    assert kernel(data) == 6
    assert entered == {}


FORK = """
import os, signal, threading
import numpy as np
from logstore.jit import compiler
from logstore.record import kernels

def hold():
    with compiler.compiling, compiler.global_compiler_lock:
        held.set()
        done.wait()

held, done = threading.Event(), threading.Event()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(int(kernels.varint_size(np.int64(300))))
done.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@WITHOUT_COMPILER
def test_a_child_that_was_forked_while_a_thread_compiled_can_compile():
    ran = subprocess.run(
        [sys.executable, "-c", FORK],
        cwd=ROOT,
        env={**os.environ, "LOGSTORE_KERNELS": "compiled"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ran.stdout == "2\n"


# --- a whole process ----------------------------------------------------------------------------

COLD = """
import json, sys, threading
from collections import Counter
from logstore import Broker, VirtualClock
from logstore.broker import warmup
from logstore.jit import compiler, policy

THREADS = int(sys.argv[1])
sys.setswitchinterval(1e-6)
dispatchers, compilations = Counter(), Counter()
make, compile_ = compiler.KernelDispatcher.__init__, compiler.KernelDispatcher.compile

def count_dispatcher(self, function, files):
    dispatchers[function.__qualname__] += 1
    make(self, function, files)

def count_compilation(self, signature):
    name = self.py_func.__qualname__
    compilations[name, threading.get_ident(), tuple(map(str, signature))] += 1
    return compile_(self, signature)

compiler.KernelDispatcher.__init__ = count_dispatcher
compiler.KernelDispatcher.compile = count_compilation
barrier = threading.Barrier(THREADS)
later = Counter()
problems = []

def work():
    try:
        for _ in range(2):
            if barrier.wait(60) == 0:
                later.update(compilations)
            barrier.wait(60)
            with Broker(clock=VirtualClock(), seed=0) as broker:
                warmup._exercise(broker)
        barrier.wait(60)
    except BaseException as error:
        problems.append(repr(error))
        barrier.abort()

threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
for each in threads:
    each.start()
for each in threads:
    each.join()
called = [
    (each.group.name, each._function.__qualname__)
    for group in policy.groups.values() for each in group.kernels if each.signatures
]
json.dump({
    "problems": problems,
    "rooms": sorted({room for room, _ in called}),
    "kernels": len(called),
    "most dispatchers": max(dispatchers.values()),
    "most compilations": max(later.values()),
    "later": sorted({key[0] for key in (compilations - later)}),
}, sys.stdout)
"""


@WITHOUT_COMPILER
def test_threads_that_load_every_kernel_of_a_cold_process_enter_the_compiler_once_each():
    """Each thread at most once for each signature, and never again once all have run."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", COLD, "8"],
        cwd=ROOT,
        env={**os.environ, "LOGSTORE_KERNELS": "compiled"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    kernels = found.pop("kernels")
    assert kernels > 8
    assert found == {
        "problems": [],
        "rooms": ["logstore.cleaner", "logstore.record", "logstore.storage.segment"],
        "most dispatchers": 1,
        "most compilations": 1,
        "later": [],
    }


# --- bound kernels ------------------------------------------------------------------------------


@WITHOUT_COMPILER
def test_a_bound_kernel_never_runs_for_arrays_of_another_thread(compiled):
    """The other thread calls while this one notes for which arrays the function was compiled."""

    class Noted(np.ndarray):
        @property
        def flags(self):
            if not nested:
                nested.append(None)
                results.append(bound(np.arange(4, dtype=np.uint8)))
                nested.clear()
            return super().flags

    nested, results = [], []
    bound = jit.Bound(make_kernel(sum_of))
    assert bound(np.arange(4).view(Noted)) == 6
    assert set(results) == {6}


# --- plain twins --------------------------------------------------------------------------------


def test_a_plain_twin_is_complete_before_another_thread_can_call_it(rooms, monkeypatch):
    monkeypatch.setattr(policy, "MODE", policy.PYTHON)

    class Slow(KernelOperation):
        """An operation whose twin is made while another thread calls a kernel of the module."""

        @property
        def plain(self):
            return self.twin({})

        def twin(self, namespaces):
            other.start()
            other.join(60)
            return lambda data: data

        def parts(self, seen):
            return iter(())

    world = {"np": np, "__name__": "toy.kernels", "slow": Slow()}
    exec(
        "def first(data):\n    return slow(second(data))\n"
        "def second(data):\n    return third(data)\n"
        "def third(data):\n    return data.sum()\n",
        world,
    )
    for name in ("first", "second", "third"):
        world[name] = jit.kernel(world[name])
    results = []
    other = threading.Thread(target=lambda: results.append(world["second"].plain(np.arange(4))))
    # The twin of `slow` starts the other thread once: the module's other names come after it.
    monkeypatch.setattr(Slow, "twin", _once(Slow.twin))
    assert world["first"](np.arange(4)) == 6
    assert results == [6]


def _once(action):
    calls = []

    def run(*arguments):
        calls.append(None)
        return action(*arguments) if len(calls) == 1 else (lambda data: data)

    return run


# --- the policy ---------------------------------------------------------------------------------


def test_threads_whose_work_pays_at_the_same_time_begin_to_load_once(rooms, monkeypatch):
    monkeypatch.setattr(policy, "MODE", policy.AUTO)
    kernel, loads, barrier = make_kernel(sum_of), [], threading.Barrier(THREADS)
    exist = []

    def meet(_):
        if exist:
            barrier.wait(60)
        return bool(exist)

    monkeypatch.setattr(files.KernelFiles, "exist", meet)
    jit.load_in_background(kernel, lambda: None, loads.append)
    exist.append(True)
    assert (
        run_together(*[lambda: jit.compile_if_worthwhile(kernel, 1)] * THREADS) == [False] * THREADS
    )
    assert len(loads) == 1


@WITHOUT_COMPILER
def test_a_signature_is_compiled_and_inserted_once_under_the_lock():
    from logstore.jit import compiler

    calls = []

    def compile_one(signature):
        calls.append((signature, compiler.compiling._is_owned()))
        return "entry"

    dispatcher = SimpleNamespace(
        _inserted={}, _compile_or_load=compile_one, _insert=lambda *row: calls.append(row)
    )
    signature = SimpleNamespace(_code=3), SimpleNamespace(_code=5)
    for _ in range(2):
        assert compiler.KernelDispatcher.compile(dispatcher, signature) == "entry"
    assert calls == [(signature, True), ((3, 5), "entry", False)]
    assert dispatcher._inserted == {(3, 5): (signature, "entry")}
    assert not compiler.compiling._is_owned()


@WITHOUT_COMPILER
def test_a_forked_child_has_locks_of_its_own(monkeypatch):
    from logstore.jit import compiler

    monkeypatch.setattr(compiler, "compiling", compiler.compiling)
    monkeypatch.setattr(compiler.global_compiler_lock, "_lock", compiler.global_compiler_lock._lock)
    before = compiler.compiling, compiler.global_compiler_lock._lock
    compiler._renew_locks()
    after = compiler.compiling, compiler.global_compiler_lock._lock
    assert len({id(each) for each in (*before, *after)}) == 4
