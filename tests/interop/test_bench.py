"""The harness with Kafka's cleaner, at sizes that take seconds."""

import pytest

from logstore.bench.micro.clean_lines import FIVE_LOGS, clean_line
from logstore.bench.micro.logs import MIB
from logstore.bench.micro.setting import Setting
from logstore.bench.suite import measure, select_jobs
from tests.interop.conftest import unavailable
from tests.support.interop import KAFKA_3, Unavailable, build


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    try:
        build(KAFKA_3)
    except Unavailable as error:
        unavailable(error)
    setting = Setting(tmp_path_factory.mktemp("bench"), total_bytes=2 * MIB, repeats=1, warmups=1)
    yield setting
    setting.close()


@pytest.mark.interop
@pytest.mark.parametrize("name", FIVE_LOGS)
def test_both_cleaners_leave_the_same_bytes_of_the_five_logs(setting, name):
    (line,) = clean_line(name, *FIVE_LOGS[name], setting)
    assert line.facts["identical_bytes"] > 0
    assert line.peer_name == "Kafka 3.9.2"
    assert line.ratio > 0
    assert len(line.peer.judged) == 1
    assert 0.3 < line.facts["kafka_thread_share"] <= 1  # the rest of its process counts as well


OTHERS = (
    "codec/*-100B",
    "mixed/*",
    "tail/100B",
    "tmpfs/1KiB-90-16KiB",
    "axes/100B-50-one",
    "axes/1KiB-90-16KiB",
)


@pytest.mark.interop
@pytest.mark.parametrize("pattern", OTHERS)
def test_both_cleaners_agree_on_every_kind_of_log(setting, pattern):
    lines = list(measure(select_jobs([pattern], full=True), setting))
    assert lines
    for line in lines:
        assert line.facts["identical_bytes"] > 0
        assert line.ratio > 0


@pytest.mark.interop
def test_both_maps_take_the_same_keys(setting):
    lines = list(measure(select_jobs(["map/*"], full=False), setting))
    assert len(lines) == 6
    assert all(line.ratio > 0 for line in lines)


@pytest.mark.interop
@pytest.mark.parametrize("pattern", ("kernels/100B-*", "kernels/1KiB-10"))
def test_kernels_keep_the_same_records_as_kafkas_filter(setting, pattern):
    """A difference raises."""
    lines = list(measure(select_jobs([pattern], full=True), setting))
    assert all(line.ratio > 0 for line in lines)
    assert {line.peer_name for line in lines} == {"Kafka 3.9.2", "memcpy"}
