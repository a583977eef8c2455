"""Worker processes: the jobs that they run, and their arguments."""

import signal
from concurrent.futures import Future

import pytest

from logstore.runtime import VirtualClock
from logstore.simulate import processes
from logstore.simulate.processes import START_NS, Workers


class Pool:
    """An executor that runs its jobs at once and records their arguments."""

    def __init__(self, count, *, mp_context, initializer, initargs):
        self.count, self.method = count, mp_context.get_start_method()
        self.jobs, self.ended = [], None
        initializer(*initargs)
        pools.append(self)

    def submit(self, function, *arguments):
        self.jobs.append(arguments[-1])
        future = Future()
        try:
            future.set_result(function(*arguments))
        except ValueError as error:
            future.set_exception(error)
        return future

    def shutdown(self, **options):
        self.ended = options


pools = []


@pytest.fixture(autouse=True)
def pool(monkeypatch):
    pools.clear()
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)
    monkeypatch.setattr(processes, "_shared", None)
    yield
    signal.signal(signal.SIGINT, before)


def double(job, shared):
    if job is None:
        raise ValueError(shared)
    return (2 * job, shared)


def test_one_process_runs_all_jobs_itself_in_order():
    with Workers(1, "shared") as workers:
        assert [*workers.run(double, [5, 6, 7])] == [
            (0, (10, "shared")),
            (1, (12, "shared")),
            (2, (14, "shared")),
        ]
        assert [*workers.run(double, [])] == []
    assert pools == []


def test_a_given_number_of_processes_runs_all_jobs_but_a_single_one():
    with Workers(3, "shared") as workers:
        assert [*workers.run(double, [5])] == [(0, (10, "shared"))]
        assert pools == []
        assert sorted(workers.run(double, [5, 6])) == [(0, (10, "shared")), (1, (12, "shared"))]
        assert sorted(workers.run(double, [7, 8, 9])) == [
            *((0, (14, "shared")), (1, (16, "shared")), (2, (18, "shared")))
        ]
        assert [*workers.run(double, [5])] == [(0, (10, "shared"))]
        [pool] = pools
        assert (pool.count, pool.method, pool.jobs) == (3, "spawn", [5, 6, 7, 8, 9])
        assert pool.ended is None
    assert pool.ended == {"cancel_futures": True}
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_processes_are_started_if_the_jobs_take_longer_than_their_start():
    workers = Workers()
    clock = workers._clock = VirtualClock()
    least_ms = START_NS // 6_000_000  # of eight more jobs, four processes save the time of six
    times_ms = iter((10_000, least_ms, *(0,) * 20))

    def job(number, _):
        clock.advance(ms=next(times_ms))
        return number

    assert [number for number, _ in workers.run(job, [0, 1])] == [0, 1]
    assert workers._job_ns == least_ms * 1_000_000
    assert [workers._is_worth_starting(count) for count in (1, 7, 8, 9)] == [
        False,
        False,
        False,
        True,
    ]
    workers._job_ns += 1_000_000
    assert [workers._is_worth_starting(count) for count in (7, 8)] == [False, True]
    assert sorted(workers.run(job, [*range(8)])) == [(number, number) for number in range(8)]
    assert [each.jobs for each in pools] == [[*range(8)]]


def test_the_error_of_a_job_is_raised_after_the_results_that_came_before_it():
    with Workers(2, "shared") as workers:
        found = workers.run(double, [None, None])
        with pytest.raises(ValueError, match="shared"):
            next(found)
    with Workers(1, "here") as workers:
        found = workers.run(double, [1, None])
        assert next(found) == (0, (2, "here"))
        with pytest.raises(ValueError, match="here"):
            next(found)
