"""One Spark for all tests of a process: two cores, a small heap, everything in this machine."""

import pytest


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


# Plans as large as the oracle's take longer to compile than a few rows take to interpret.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture
def interpreted(spark):
    """Switch code generation off for a test; return the settings that were."""
    kept = {name: spark.conf.get(name) for name in INTERPRETED}
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield kept
    for name, value in kept.items():
        spark.conf.set(name, value)
