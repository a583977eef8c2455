"""The oracle verifies cleanings of a generated stream, by each strategy."""

import shutil
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("pyspark")

from logstore import Broker, VirtualClock
from logstore.spark.oracle.verify import Cleaned, Rules, verify
from logstore.workload.blocks import NO_VERSION, build_block
from tests.support.world.generated import preset

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("interpreted")]

RECORDS = 1_200
PARTITIONS = 2
STRATEGIES = ("offset", "timestamp", "header")


def fill(broker, topic, spec):
    """Append a block, record by record, over three segments."""
    block = build_block(spec, 0)
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


def test_correct_output_passes_and_a_lost_record_is_found(spark, tmp_path):
    """A topic a strategy, all judged at once."""
    spec = preset(
        "adversarial",
        records=RECORDS,
        partitions=PARTITIONS,
        keys={"count": 150},
        values={"max_bytes": 200},
        producers={"transactional": 0},
    )
    header = spec.versions.header
    data = tmp_path / "data"
    clock = VirtualClock()
    with Broker(data, clock=clock) as broker:
        for strategy in STRATEGIES:
            configs = {"cleanup.policy": "compact", "compaction.strategy": strategy}
            if strategy == "header":
                configs["compaction.strategy.header"] = header
            broker.create_topic(strategy, partitions=PARTITIONS, configs=configs)
            fill(broker, strategy, spec)
    shutil.copytree(data, tmp_path / "before")
    with Broker(data, clock=clock) as broker:
        report = broker.clean(force=True)
        cleaned = {
            each.topic_partition: Cleaned(
                0, each.end_offset, broker.log(*each.topic_partition).log_end_offset
            )
            for each in report.cleaned
        }
        now = clock.now_ms()
    assert len(cleaned) == PARTITIONS * len(STRATEGIES)
    assert all(each.end_offset > 100 for each in cleaned.values())

    def load(path):
        return spark.read.format("logstore").load(str(path))

    rules = {
        tp: Rules(
            strategy=tp.topic,
            header=header if tp.topic == "header" else "",
            since_ms=now,
            now_ms=now,
        )
        for tp in cleaned
    }
    before, after = load(tmp_path / "before"), load(data)
    verdict = verify(before, after, rules, cleaned)
    assert verdict.violations == {}
    assert verdict.records_before == len(STRATEGIES) * RECORDS
    tail = sum(each.log_end_offset - each.end_offset for each in cleaned.values())
    assert 0 < tail < verdict.records_after < verdict.records_before // 2
    is_lost = "partition = 0 AND offset <= 300"
    short = verify(before, after.where(f"NOT ({is_lost})"), rules, cleaned, examples=RECORDS)
    gone = {
        row.topic: row["count"] for row in after.where(is_lost).groupBy("topic").count().collect()
    }
    assert gone.keys() == set(STRATEGIES)
    assert Counter(each["topic"] for each in short.examples) == gone
    assert set(short.violations) <= {"survivor_lost", "tombstone_lost"}
