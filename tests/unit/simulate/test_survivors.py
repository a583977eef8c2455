"""The surviving records of a topic whose records are appended in pieces of any size."""

import numpy as np

from logstore.simulate.population import SpecKeys
from logstore.simulate.survivors import Survivors
from logstore.workload.blocks import build_block
from logstore.workload.spec import BLOCK_RECORDS, from_mapping

SPEC = from_mapping(
    {
        "topic": "t",
        "records": BLOCK_RECORDS + 40,
        "partitions": 2,
        "keys": {"count": 50},
        "values": {"bytes": 1},
        "deletes": {"share": 0.4},
        "producers": {"transactional": 1, "abort_share": 0.4},
    }
)


def test_records_of_several_blocks_may_be_appended_at_once():
    blocks = [build_block(SPEC, number) for number in (0, 1)]
    counts = [np.bincount(each.partition, minlength=2) for each in blocks]
    separate, together = (Survivors(SPEC.topic_configs, SpecKeys(SPEC), 2) for _ in range(2))
    for survivors in (separate, together):
        for block in blocks:
            survivors.expect(block)
    for partition, (first, second) in enumerate(zip(*counts, strict=True)):
        separate.append(partition, 100, int(first))
        separate.append(partition, 100 + int(first), int(second))
        together.append(partition, 100, int(first + second))
    for survivors in (separate, together):
        survivors.update_survivors()
    assert together.offset.tolist() == separate.offset.tolist()
    assert together.tombstone.tolist() == separate.tombstone.tolist()
    assert max(together.offset) > 100 + max(counts[0])
