"""One Spark for all tests of a process: two cores, a small heap, everything in this machine."""

import pytest

from tests.support.workload_commands import INTERPRETED


@pytest.fixture(scope="session")
def spark():
    """Return a session; the JVM ends with it."""
    from bench.workloads.session import spark_session

    session = spark_session(
        "tests",
        master="local[2]",
        driver_memory="1g",
        shuffle_partitions=2,
        # These jobs are small: what the second compiler gains, they do not live to see.
        settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
    )
    yield session
    session.stop()


@pytest.fixture
def interpreted(spark):
    """Switch code generation off for a test; return the settings that were."""
    settings = {**INTERPRETED, "spark.sql.adaptive.enabled": "false"}
    kept = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield kept
    for name, value in kept.items():
        spark.conf.set(name, value)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let a commit that finds the data directory in use say so at once."""
    monkeypatch.setattr("bench.workloads.commit.LOCK_WAIT_SECONDS", 0.0)
