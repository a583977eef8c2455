"""A clock for measurements: each pair of readings is one second, a quarter of it CPU time."""

from itertools import count


class StepClock:
    """Replaces the module `time` in a harness; every reading is one step after the last."""

    def __init__(self) -> None:
        self._wall, self._cpu = count(), count()

    def perf_counter(self) -> float:
        return float(next(self._wall))

    def process_time(self) -> float:
        return next(self._cpu) / 4
