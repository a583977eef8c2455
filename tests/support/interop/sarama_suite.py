"""Functional tests of sarama, from a checkout, against a cluster of five brokers.

    python -m tests.support.interop.sarama_suite ../sarama
    python -m tests.support.interop.sarama_suite ../sarama -test.run TestFuncTxn

The tests reach the brokers through toxiproxy, which Go fetches, so the brokers advertise the
addresses of the proxies. A program named `docker` stops and starts brokers and runs Kafka's console
tools for them. Further arguments are passed to the test program. Exits with 0 if all tests pass;
otherwise prints the others and exits with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from logstore import Authorizer, Cluster
from logstore.wire.listener import Listener
from tests.support.interop.foreign_suite import GO_OUTCOMES, print_outcomes
from tests.support.interop.judge import BUILDS, Unavailable
from tests.support.interop.real_broker import kafka_4_3
from tests.support.interop.tools import TOOLS

BROKERS = 5
VERSION = "4.3.1"
"""The release whose features the tests may expect."""

TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
CONTROL_PORT = 18474
PROXIES, BEHIND = "127.0.0.1", "127.0.0.2"
"""Hosts of the proxies and of the brokers, whose ports are equal."""

FIRST_PORT = 29091

SETTINGS = {
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}

EDITS = {
    "functional_test.go": (
        ('fmt.Sprintf("0.0.0.0:%d"', f'fmt.Sprintf("{PROXIES}:%d"'),
        ('fmt.Sprintf("kafka-%d:%d", i, 29090+i)', f'fmt.Sprintf("{BEHIND}:%d", 29090+i)'),
        ('fmt.Sprintf("kafka%d", brokerID)', 'fmt.Sprintf("kafka%d", brokerID+1)'),
    ),
    "functional_client_test.go": (
        ('SaveProxy(t, "kafka1")', 'SaveProxy(t, "kafka2")'),
        ("KafkaBrokerAddrs[0]}", "KafkaBrokerAddrs[1]}"),
    ),
    "functional_admin_test.go": (("= int32(i + 1)", "= int32(i)"),),
}
"""Changes of the tests: the addresses, and ids from 0 instead of 1."""

DOCKER = """#!{python}
import os, socket, sys
_, action, *rest = sys.argv[1:]
if action in ("start", "stop"):
    with socket.create_connection(("127.0.0.1", {port})) as server:
        server.sendall(f"{action} {rest[0].rpartition('-')[2]}".encode())
        server.recv(1)
elif action == "exec":
    tool = os.path.basename(rest[2]).removesuffix(".sh")
    arguments = ["{broker}" if each.startswith("kafka-") else each for each in rest[3:]]
    os.execvp("java", ["java", "-cp", "{classes}", {tools}[tool], *arguments])
"""
"""The stand-in for `docker compose`; without an action, it prints no logs."""


def _built(checkout: Path) -> Path:
    """Return the test program of the edited checkout."""
    if not (checkout / "functional_test.go").is_file():
        raise Unavailable(f"{checkout} is not a checkout of sarama")
    folder = BUILDS / "sarama"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkout, folder, ignore=shutil.ignore_patterns(".git"))
    for name, edits in EDITS.items():
        path = folder / name
        text = path.read_text(encoding="utf-8")
        for old, new in edits:
            assert old in text, (name, old)
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    program = folder / "functional.test"
    for command, environment in (
        (["go", "install", TOXIPROXY], {"GOBIN": str(folder / "bin")}),
        (["go", "test", "-tags=functional", "-c", "-o", str(program), "."], {}),
    ):
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"{command[1]}: {done.stderr.strip()[-300:]}")
    return program


@contextmanager
def _docker(folder: Path, cluster: Cluster) -> Iterator[None]:
    """Write the stand-in for docker, and serve its requests."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            action, broker = self.request.recv(100).decode().split()
            if action == "stop":
                cluster.stop(int(broker))
            elif int(broker) not in cluster.brokers:
                cluster.restart(int(broker))
            self.request.sendall(b"!")

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        values = {
            "python": sys.executable,
            "port": server.server_address[1],
            "broker": f"{PROXIES}:{FIRST_PORT}",
            "classes": kafka_4_3(),
            "tools": TOOLS,
        }
        text = DOCKER
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        path = folder / "bin" / "docker"
        path.write_text(text)
        path.chmod(0o755)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


@contextmanager
def _proxied(folder: Path) -> Iterator[str]:
    """Run toxiproxy; yield the address of its API."""
    command = [str(folder / "bin" / "server"), "-port", str(CONTROL_PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield f"http://127.0.0.1:{CONTROL_PORT}"
        finally:
            server.terminate()


def run(checkout: Path, arguments: Sequence[str]) -> dict[str, str]:
    """Run the tests; return the outcome of each: passed, failed or skipped.

    Raises
    ------
    Unavailable
        There is no Go or Java, it is not a checkout of sarama, or a module cannot be fetched.
    """
    program = _built(checkout)
    folder = program.parent
    names = {
        name
        for path in folder.glob("functional_*_test.go")
        for name in re.findall(r"^func (Test[A-Z]\w*)\(t ", path.read_text(), re.MULTILINE)
    }
    log = BUILDS / "sarama.log"
    advertised = property(lambda self: (PROXIES, self.port))
    racks = [str(number) for number in range(BROKERS)]
    everybody = Authorizer(allow_everyone_if_no_acl_found=True)
    with (
        patch.object(Listener, "_advertised_host", lambda *_: PROXIES),
        patch.object(Listener, "address", advertised),
        Cluster(BROKERS, broker_config=SETTINGS, background=True, racks=racks) as cluster,
        cluster.listen(BEHIND, FIRST_PORT, authorizer=everybody, auto_create=False),
        _docker(folder, cluster),
        _proxied(folder) as proxies,
        log.open("wb") as output,
    ):
        wanted = ["-test.run", f"^({'|'.join(sorted(names))})$", *arguments]
        environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "TOXIPROXY_ADDR": proxies,
            "KAFKA_VERSION": VERSION,
        }
        subprocess.run(
            [str(program), "-test.v", "-test.timeout=30m", *wanted],
            cwd=folder,
            env=os.environ | environment,
            stdout=output,
            stderr=output,
            check=False,
        )
    ended = re.findall(r"^--- (\w+): (\w+)", log.read_text(errors="replace"), re.MULTILINE)
    if not ended:
        raise Unavailable(f"no test ran: see {log}")
    return {name: GO_OUTCOMES[state.lower()] for state, name in ended}


def main() -> int:
    """Run the tests, and print the outcome of each that did not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of sarama")
    given, arguments = parser.parse_known_args()
    BUILDS.mkdir(exist_ok=True)
    try:
        outcomes = run(given.checkout.resolve(), arguments)
    except Unavailable as error:
        print(error)
        return 1
    print_outcomes(sorted(outcomes.items()))
    return int("failed" in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())
