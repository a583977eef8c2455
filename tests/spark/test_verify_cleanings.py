"""The oracle judges what the cleaner did to a generated stream, by each strategy."""

import shutil

import numpy as np
import pytest

pytest.importorskip("pyspark")

from logstore import Broker, VirtualClock
from logstore.bench.workloads.judging.verify import Cleaned, Rules, verify
from logstore.bench.workloads.making.blocks import NO_VERSION, block_of
from tests.support.world.generated import preset

pytestmark = pytest.mark.slow

RECORDS = 1_200
PARTITIONS = 2


def fill(broker, topic, spec):
    """Append a block, record by record, over three segments."""
    block = block_of(spec, 0)
    versions = block.version_values()
    for row in np.arange(RECORDS):
        if row % 350 == 349:
            for partition in range(PARTITIONS):
                broker.roll(topic, partition)
        stated = block.version_form[row] != NO_VERSION
        broker.append(
            topic,
            key=block.key[row].tobytes(),
            value=None if block.tombstone[row] else block.value[row],
            partition=int(block.partition[row]),
            timestamp=int(block.timestamp[row]),
            headers=[(spec.versions.header, versions[row])] if stated else [],
        )


@pytest.mark.parametrize("strategy", ("offset", "timestamp", "header"))
def test_what_the_cleaner_did_is_right_and_a_lost_record_is_found(spark, tmp_path, strategy):
    spec = preset(
        "adversarial",
        records=RECORDS,
        partitions=PARTITIONS,
        keys={"count": 150},
        values={"max_bytes": 200},
        producers={"transactional": 0},
    )
    configs = {"cleanup.policy": "compact", "compaction.strategy": strategy}
    if strategy == "header":
        configs["compaction.strategy.header"] = spec.versions.header
    data = tmp_path / "data"
    clock = VirtualClock()
    with Broker(data, clock=clock) as broker:
        broker.create_topic("t", partitions=PARTITIONS, configs=configs)
        fill(broker, "t", spec)
    shutil.copytree(data, tmp_path / "before")
    with Broker(data, clock=clock) as broker:
        report = broker.clean("t", force=True)
        cleaned = {
            ("t", each.topic_partition.partition): Cleaned(
                0,
                each.end_offset,
                broker.log("t", each.topic_partition.partition).log_end_offset,
            )
            for each in report.cleaned
        }
        now = clock.now_ms()
    assert len(cleaned) == PARTITIONS
    assert all(each.end_offset > 100 for each in cleaned.values())

    def load(path):
        return spark.read.format("logstore").load(str(path))

    rules = Rules(strategy=strategy, header=spec.versions.header, since_ms=now, now_ms=now)
    before, after = load(tmp_path / "before"), load(data)
    verdict = verify(before, after, rules, cleaned)
    assert verdict.violations == {}
    assert verdict.records_before == RECORDS
    tail = sum(each.log_end_offset - each.end_offset for each in cleaned.values())
    assert 0 < tail < verdict.records_after < RECORDS // 2
    short = verify(before, after.where("partition = 1 OR offset > 300"), rules, cleaned)
    gone = after.where("partition = 0 AND offset <= 300").count()
    lost = ("survivor_lost", "tombstone_lost")
    assert sum(short.violations.get(kind, 0) for kind in lost) == gone > 0
    assert set(short.violations) <= set(lost)
