"""Blocks made by Spark's tasks: the same bytes however many tasks there are."""

import hashlib

import numpy as np
import pytest

pytest.importorskip("pyspark")

from logstore.workload.blocks import build_block
from logstore.workload.spec import BLOCK_RECORDS
from tests.support.world.generated import preset

pytestmark = [
    pytest.mark.slow,
    pytest.mark.interop,
]  # in short: tests/unit/workload/test_blocks.py

RECORDS = 2 * BLOCK_RECORDS + 1_000


def digests_of(spec):
    """Return a function for `mapInArrow` from numbers of blocks to digests of their columns."""

    def made(batches):
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                block = build_block(spec, number)
                hashed = hashlib.sha256()
                for column in (
                    block.partition, block.key, block.value.data, block.value.ends,
                    block.tombstone, block.timestamp, block.version_values().data, block.producer,
                    block.transaction, block.aborted, block.batch, *block.markers,
                ):  # fmt: skip
                    hashed.update(np.ascontiguousarray(column).tobytes())
                yield pa.RecordBatch.from_pydict({"block": [number], "sha": [hashed.hexdigest()]})

    return made


def test_two_three_and_sixteen_splits_make_the_same_blocks(spark):
    spec = preset("adversarial", records=RECORDS)
    here = None
    for splits in (2, 3, 16):
        numbers = spark.range(0, spec.blocks, 1, splits)
        rows = numbers.mapInArrow(digests_of(spec), "block bigint, sha string").collect()
        found = {row["block"]: row["sha"] for row in rows}
        assert sorted(found) == [0, 1, 2]
        assert here is None or found == here
        here = found
