"""Each `curl` line of docs/HTTP.md, sent to a page over a socket, has the documented response."""

import http.client
import re
import shlex
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from logstore import Broker, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.analysis import losses
from logstore.ui import api_request, connections, server
from logstore.ui.api import preview, records
from logstore.ui.app import ROUTES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "HTTP.md"
TOKEN = "5ca1ab1e"
ELLIPSIS = "…"


def examples():
    """The lines and their output, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S):
        for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
            if line.startswith("curl "):
                found.append((line, shown.strip()))
    return found


EXAMPLES = examples()


@pytest.fixture(scope="module")
def page():
    """The broker that the document describes."""
    with Broker(clock=VirtualClock(), seed=1) as broker:
        broker.create_topic("users", 1, {"cleanup.policy": "compact"})
        for number in range(10):
            value = b"x" if number % 4 else None
            broker.append("users", key=b"k%d" % (number % 3), value=value)
        broker.roll("users")
        broker.append("users", key=b"k0", value=b"last")
        broker.create_topic("events")
        for number in range(6):
            broker.append("events", value=b"event %d" % number)
        committed = {TopicPartition("events", 0): OffsetAndMetadata(2, "", -1)}
        broker.admin().alter_group_offsets("billing", committed)
        with broker.ui(token=TOKEN) as page:
            yield page


def curl(page, line, variables):
    """Execute a line as curl does; return the response, or the first part of a stream."""
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    words = shlex.split(line)[1:]
    method, body, headers, target, streams = None, None, {}, "", False
    while words:
        word = words.pop(0)
        if word == "-H":
            name, _, value = words.pop(0).partition(":")
            headers[name] = value.strip()
        elif word == "-X":
            method = words.pop(0)
        elif word == "-d":
            body = words.pop(0)
        elif word == "-N":
            streams = True
        else:
            target = word.removeprefix("http://page")
    method = method or ("GET" if body is None else "POST")
    with closing(http.client.HTTPConnection(*page.address)) as connection:
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        if streams:
            return "".join(answer.readline().decode() for _ in range(8))
        return answer.read().decode()


def test_the_lines_have_the_documented_responses(page):
    variables = {
        "AUTH": f"Authorization: Bearer {TOKEN}",
        "PAGE": "http://page",
        "JSON": "Content-Type: application/json",
        "CONFIRM": "",
    }
    for line, shown in EXAMPLES:
        said = curl(page, line, variables).strip()
        pattern = ".*".join(map(re.escape, shown.split(ELLIPSIS)))
        assert re.fullmatch(pattern, said, re.DOTALL), (line, said)
        if found := re.search(r'"confirm":"([^"]+)"', said):
            variables["CONFIRM"] = found[1]


def test_the_limits_are_the_documented_ones():
    text = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    for sentence in (
        f"the complete request head within {connections.HEAD_S:g} seconds",
        f"any of the {server.CONNECTIONS_MAX} connections",
        f"the request is larger than {api_request.BODY_BYTES_MAX / (1 << 20):g} MiB",
        f"after {records.SCAN_RECORDS_MAX:,} records or"
        f" {records.SCAN_BYTES_MAX / (1 << 20):g} MiB of them",
        f"reads at most {preview.READ_BYTES_MAX / (1 << 20):g} MiB",
        f"A preview covers {preview.PARTITIONS_MAX} partitions",
        f"Above {losses.COUNTED_BYTES_MAX / (1 << 20):g} MiB, offsets are counted",
    ):
        assert sentence in text


def test_every_route_has_its_line():
    asked = {
        (re.search(r"-X (\w+)", line) or [0, "POST" if " -d " in line else "GET"])[1]
        + " "
        + urlsplit(re.search(r"\$PAGE([^\"\s]*)", line)[1]).path
        for line, _ in EXAMPLES
    }
    lacking = []
    for route in ROUTES:
        method = next(each for each in sorted(route.methods) if each != "HEAD")
        if not any(
            each.startswith(f"{method} ") and route.path_regex.match(each.partition(" ")[2])
            for each in asked
        ):
            lacking.append(f"{method} {route.path}")
    assert lacking == []
