"""One Spark for all tests of a process: two cores, a small heap, everything in this machine."""

import pytest

from tests.support.world.workload_commands import INTERPRETED, JVM_OPTIONS


@pytest.fixture(scope="session")
def session_of_all():
    """Return a session; the JVM ends with it."""
    from logstore.spark.sessions.session import spark_session, stop_session

    session = spark_session(
        "tests",
        master="local[2]",
        driver_memory="1g",
        shuffle_partitions=2,
        settings={"spark.driver.extraJavaOptions": JVM_OPTIONS},
    )
    yield session
    stop_session(session)


@pytest.fixture
def spark(session_of_all):
    """Return the session; if its JVM is dead, the test fails at once and says so."""
    from logstore.spark.sessions.jvm import jvm_death

    def fail_if_dead():
        if death := jvm_death():
            pytest.fail(str(death), pytrace=False)

    fail_if_dead()
    yield session_of_all
    fail_if_dead()


@pytest.fixture
def interpreted(spark):
    """Switch code generation off for a test; return the settings that were."""
    from logstore.spark.sessions.jvm import jvm_death

    settings = {**INTERPRETED, "spark.sql.adaptive.enabled": "false"}
    kept = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield kept
    if jvm_death() is None:
        for name, value in kept.items():
            spark.conf.set(name, value)


@pytest.fixture(params=("python", pytest.param("spark", marks=pytest.mark.interop)))
def frames(request, monkeypatch):
    """Return a session for the oracle's frames: of this process, or Spark's, interpreted."""
    if request.param == "python":
        from tests.support.oracles.local_frames import local_session

        session = local_session(monkeypatch)
        yield session
        assert session.persisted == 0
    else:
        request.getfixturevalue("interpreted")
        yield request.getfixturevalue("spark")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let a commit that finds the data directory in use say so at once."""
    monkeypatch.setattr("logstore.spark.datasource.commit.LOCK_WAIT_SECONDS", 0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that need a session: a JVM alone takes as long as a hundred other tests."""
    for item in items:
        if "session_of_all" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.interop)
