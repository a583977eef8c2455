"""A Kafka 4.3.1 broker with the command line of `logstore serve`, to run suites of clients on both.

    python -m tests.support.interop.kafka_serve --config-file F serve --topic t:3

Prints the broker's address, and runs until SIGTERM. Options that Kafka does not need are ignored.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.interop.conversations import warm_up
from tests.support.interop.answers import Side
from tests.support.interop.caller import Caller
from tests.support.interop.judge import fast_scratch
from tests.support.interop.real_broker import GROUP_FEATURES, RealBroker, kafka_4_3

SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.io.threads": "4",
    # Kafka's defaults, instead of the quick ones of `real_broker`.
    "log.roll.ms": "604800000",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.retention.check.interval.ms": "300000",
    "log.segment.delete.delay.ms": "60000",
}


def suite_broker(home: Path, settings: Mapping[str, str]) -> RealBroker:
    """Return a broker for a suite of clients; raises `Unavailable`."""
    return RealBroker(kafka_4_3(), home, SETTINGS | settings, features=GROUP_FEATURES)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config-file", type=Path, required=True)
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--topic", action="append", default=[], metavar="NAME:PARTITIONS")
    given, _ = parser.parse_known_args()
    lines = given.config_file.read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line)
    assert given.brokers == 1, "only one broker of Kafka is started"
    end = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, end)
    with (
        tempfile.TemporaryDirectory(dir=fast_scratch()) as home,
        suite_broker(Path(home), settings) as broker,
    ):
        topics = [
            {"name": name, "num_partitions": int(count), "replication_factor": 1}
            for name, _, count in (each.rpartition(":") for each in given.topic)
        ]
        warm_up(Side("Kafka", broker.bootstrap))
        if topics:
            caller = Caller(broker.bootstrap, client_id="suite")
            caller.call("CreateTopics", 7, {"topics": topics, "timeout_ms": 10_000})
            caller.close()
        sys.stdout.write(f"{broker.bootstrap}\n")
        sys.stdout.flush()
        signal.sigwait(end)


if __name__ == "__main__":
    main()
