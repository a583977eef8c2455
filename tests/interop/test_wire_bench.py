"""Brokers compared over the wire with few messages: figures for all, and features of each."""

import pytest

from logstore.bench.wire.__main__ import measure
from logstore.bench.wire.conformance import CHECKS, YES
from logstore.bench.wire.measuring import Shape
from logstore.bench.wire.result import FIGURES, lines, read_result
from tests.interop.conftest import unavailable
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

PATIENCE_S = 120
"""Timeout for cleaners, which check ten times a second."""

FALSE_TRUTHS = {
    "logstore-memory": set(),
    "logstore-disk": set(),
    "kafka": set(),
    "kfake": {"log_start", "horizon"},
    "mock": set(CHECKS),
}
"""Truths that do not hold, by broker; all hold for Kafka."""

INSIDE = {"logstore-memory", "kfake", "mock"}
"""Brokers that can be started in a running process."""


@pytest.fixture(scope="module")
def result():
    result = measure(Shape(messages=2000, rounds=1), (), PATIENCE_S, lambda text: None)
    for title, reason in result.missing.items():
        unavailable(Unavailable(f"{title}: {reason}"))
    return result


@pytest.mark.parametrize("name", FALSE_TRUTHS)
def test_each_broker_has_all_figures(result, name):
    (side,) = (side for side in result.sides if side.name == name)
    for figure in FIGURES:
        samples = side.samples[figure]
        assert len(samples) == (figure != "inside_ms" or name in INSIDE), figure
        assert all(sample > 0 or figure.endswith("cpu_us") for sample in samples), figure
    assert side.samples["kept_percent"] == [100]


@pytest.mark.parametrize("name", FALSE_TRUTHS)
def test_properties_of_a_broker(result, name):
    (side,) = (side for side in result.sides if side.name == name)
    assert {truth for truth, output in side.truths.items() if output != YES} == FALSE_TRUTHS[
        name
    ], side


def test_result_is_restored_from_its_file(result, tmp_path):
    path = tmp_path / "result.json"
    result.write(path)
    assert list(lines(read_result(path))) == list(lines(result))
