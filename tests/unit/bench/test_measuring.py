"""The measuring core: alternation, warm-ups, and stopwatches."""

import gc
import threading
import time

from logstore.bench.measuring import Sample, Stopwatch, no_collection, run_interleaved, timed


def test_contestants_take_turns_and_warm_ups_do_not_count():
    calls = []

    def contestant(name):
        def run():
            calls.append(name)
            return Sample(len(calls), 0)

        return run

    contestants = {name: contestant(name) for name in "ab"}
    samples = run_interleaved(contestants, repeats=2, warmups=1)
    assert calls == ["a", "b"] * 3
    assert samples == {"a": [Sample(3, 0), Sample(5, 0)], "b": [Sample(4, 0), Sample(6, 0)]}


def test_a_stopwatch_counts_the_cpu_of_every_thread_and_no_more():
    spent = []

    def work():
        began = time.thread_time()
        sum(range(200_000))
        spent.append(time.thread_time() - began)

    before = time.process_time()
    with Stopwatch() as watch:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    around = time.process_time() - before
    assert 0 < spent[0] <= watch.sample.cpu_s <= around
    assert watch.sample.wall_s > 0


def test_no_cycle_is_collected_while_it_is_timed():
    seen = []
    run = timed(lambda: seen.append(gc.isenabled()))
    assert run().wall_s >= 0
    assert seen == [False]
    assert gc.isenabled()
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
