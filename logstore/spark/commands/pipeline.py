"""The `run` pipeline: generate a workload, clean a copy of it, and verify the result."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logstore.analysis.copies import copy_partitions
from logstore.broker import Broker
from logstore.runtime import DiskFileSystem, FixedWallClock
from logstore.spark.generation.generate import Generated, generate, parquet_dir
from logstore.spark.oracle.directories import verify_directories
from logstore.spark.oracle.verify import Verdict
from logstore.spark.stages import timed
from logstore.types import DAY_MS
from logstore.workload.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logstore.cleaner.stats import CleanReport


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run.

    Attributes
    ----------
    generated : Generated
        The topic in `DIR/before`, whose rows are in `DIR/before.parquet/TOPIC`.
    cleaned : CleanReport
        Report of the cleaning pass over the copy in `DIR/after`.
    verdict : Verdict
        The verdict of the oracle.
    seconds : dict
        Duration of each stage, in execution order.
    """

    generated: Generated
    cleaned: CleanReport
    verdict: Verdict
    seconds: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON that the command prints."""
        records = self.generated.records
        return {
            "records": records,
            "seconds": {stage: round(taken, 3) for stage, taken in self.seconds.items()},
            "records_per_second": {
                stage: round(records / taken) for stage, taken in self.seconds.items() if taken
            },
            "generated": self.generated.as_json(),
            "cleaned": self.cleaned.to_json(),
            "verified": self.verdict.as_json(),
        }


def run_pipeline(
    spark: SparkSession,
    spec: Spec,
    directory: str,
    *,
    strategy: str | None = None,
    threads: int | None = None,
) -> Run:
    """Generate a workload, clean a copy of it, and verify the result.

    Parameters
    ----------
    directory : str
        Parent of `before`, `before.parquet` and `after`, which must not exist.
    strategy : str, optional
        Compaction strategy for cleaning and verification. [default: from the workload]
    threads : int, optional
        Number of partitions to clean concurrently. [default: number of cores]

    Raises
    ------
    LogStoreError
        A stage failed. The output of earlier stages is retained.

    Notes
    -----
    In the copy, closed segments are hard links, because cleaning replaces files instead of
    modifying them. In virtual time, the copy is cleaned one day after the workload's last record.
    """
    before, after = f"{directory}/before", f"{directory}/after"
    seconds: dict[str, float] = {}
    configs = {} if strategy is None else {"compaction.strategy": strategy}
    parquet = parquet_dir(before, spec.topic)
    generated = generate(spark, spec, before, parquet=parquet, configs=configs)
    seconds |= {f"generate: {stage}": taken for stage, taken in generated.seconds.items()}
    now_ms = spec.time.start_ms + round((spec.time.days + 1) * DAY_MS)
    clock = FixedWallClock(now_ms)
    with timed(seconds, "copy"), Broker(before, clock=clock, read_only=True) as source:
        fs = DiskFileSystem(clock)
        partitions = source.partitions(spec.topic)
        copy_partitions(source.manager, partitions, fs, after, link=fs.link)
    with Broker(after, clock=clock) as broker, timed(seconds, "clean"):
        cleaned = broker.clean(
            spec.topic,
            force=True,
            roll=True,
            threads=threads or os.cpu_count(),
        )
    with timed(seconds, "verify"):
        verdict = verify_directories(
            spark, before, after, topic=spec.topic, now_ms=now_ms, forced=True
        )
    return Run(generated, cleaned, verdict, seconds)
