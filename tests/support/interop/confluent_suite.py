"""confluent-kafka-python's integration tests, from a checkout, against a listener.

`make clients CONFLUENT=DIR` runs this module with DIR. It exits with 0 if all pass except
`LEFT_OUT` and `FAILING`; otherwise it names the others and exits with 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from logstore import Authorizer, Broker
from tests.support.interop.foreign_suite import print_outcomes, run_pytest
from tests.support.interop.judge import BUILDS, Unavailable

INSTALL_TIMEOUT_S = 300

LEFT_OUT = {
    "admin/test_describe_operations.py": "starts a Kafka of its own, whatever BROKERS says",
    "schema_registry": "needs a schema registry",
    "share_consumer": "share groups (KIP-932) are not served",
    "share_consumer_oauth": "share groups, at a Kafka of its own",
    "share_consumer_sasl": "share groups, at a Kafka of its own",
}
"""Paths under `tests/integration` that are not run, and why."""

FAILING = {
    "test_incremental_alter_configs::test_incremental_alter_configs": (
        "wants the min.insync.replicas that the controller of Kafka 4.1 and newer writes as a"
        " dynamic setting of the cluster when it starts"
    ),
}
"""Tests that are run and cannot pass, and why."""

REQUIREMENTS = (
    "attrs",
    "authlib",
    "avro",
    "cachetools",
    "fastavro",
    "googleapis-common-protos",
    "httpx",
    "jsonschema",
    "orjson",
    "protobuf",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "requests",
)
"""Requirements of its fixtures, which import every serializer; it pins none of them closely."""


def _python(checkout: Path) -> Path:
    """Return the interpreter of an environment with the tested client, created once."""
    folder = Path(sys.prefix) / "confluent-suite"
    python = folder / "bin" / "python"
    trivup = sorted((checkout / "tests" / "trivup").glob("trivup-*.tar.gz"))
    wanted = [f"confluent-kafka=={version('confluent-kafka')}", *REQUIREMENTS]
    # Its conftest imports trivup even where it starts no Kafka with it.
    wanted += [str(trivup[-1]) if trivup else "trivup"]
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text() == "\n".join(wanted):
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, *wanted]):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise Unavailable(
                f"a dependency of the tests cannot be installed: {done.stderr.strip()[-300:]}"
            )
    stamp.write_text("\n".join(wanted))
    return python


def run(checkout: Path) -> dict[str, str]:
    """Run the tests of a checkout; return as `foreign_suite.run` does.

    Raises
    ------
    Unavailable
        It is not a checkout of confluent-kafka-python, or a dependency cannot be installed.
    """
    tests = checkout / "tests" / "integration"
    if not (tests / "cluster_fixture.py").is_file():
        raise Unavailable(f"{checkout} is not a checkout of confluent-kafka-python")
    python = _python(checkout)
    ignored = [f"--ignore={tests / path}" for path in LEFT_OUT if (tests / path).exists()]
    everybody = Authorizer(allow_everyone_if_no_acl_found=True)  # its tests create ACLs
    with Broker() as broker, broker.listen(authorizer=everybody) as listener:
        environment = {"BROKERS": listener.bootstrap}
        BUILDS.mkdir(exist_ok=True)
        report = BUILDS / "confluent-suite.xml"
        return run_pytest(python, checkout, [*ignored, "tests/integration"], environment, report)


def unexpected_outcomes(outcomes: dict[str, str]) -> list[str]:
    """Return a line for each test whose result is not the one in `FAILING`."""
    result = []
    for test, outcome in outcomes.items():
        is_known = test in FAILING
        if outcome == "failed" and not is_known:
            result.append(f"{test} failed")
        elif outcome == "passed" and is_known:
            result.append(f"{test} passes now: take it out of FAILING")
    return result if outcomes else ["no test was run"]


def main() -> int:
    """Run the tests, and print the result of each that did not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of confluent-kafka-python")
    checkout: Path = parser.parse_args().checkout.resolve()
    try:
        outcomes = run(checkout)
    except Unavailable as error:
        print(error)
        return 1
    for path, reason in LEFT_OUT.items():
        print(f"left out  {path}: {reason}")
    print_outcomes(outcomes.items(), FAILING)
    unexpected = unexpected_outcomes(outcomes)
    if unexpected:
        print(*unexpected, sep="\n")
        print(f"Their output: {BUILDS / 'confluent-suite.log'}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
