"""`logstore ui` and the page of `serve`: an address on the first line; files stay unchanged."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from logstore import Broker
from logstore.ui.app import ROUTES
from tests.cli.conftest import sound, torn_tail, tree_hash
from tests.support.world.page import Asked

TIMEOUT_S = 100
"""Maximum wait of a test; a passing test never waits this long."""


@contextmanager
def running(*arguments, lines=1):
    process = subprocess.Popen(
        [sys.executable, "-m", "logstore", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOGSTORE_VERIFY": "0"},
        # The suite may run in the background, where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process, [process.stdout.readline().strip() for _ in range(lines)]
    finally:
        process.kill()
        process.communicate()


def asked(url, target, method="GET", body=None):
    """Send a request to the printed address."""
    address = urlsplit(url)
    headers = {"Authorization": f"Bearer {address.query.removeprefix('token=')}"}
    if method != "GET":
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(address.hostname, address.port)
    connection.request(method, target, body, headers)
    return connection, connection.getresponse()


def answer(url, target, *more):
    connection, response = asked(url, target, *more)
    with closing(connection):
        return response.status, json.loads(response.read())


@pytest.mark.parametrize(
    ("number", "code"), ((signal.SIGTERM, 0), (signal.SIGINT, 130)), ids=("term", "ctrl-c")
)
def test_it_shows_a_copied_directory_until_it_is_stopped(golden, number, code):
    directory = golden("segments")
    before = tree_hash(directory)
    with running("ui", directory) as (process, (url,)):
        status, about = answer(url, "/api/about")
        assert (status, about["read_only"]) == (200, True)
        assert about["data_dirs"] == [str(directory)]
        connection, stream = asked(url, "/api/events")
        with closing(connection):
            assert stream.readline() == b"retry: 1000\n"  # and remains open
            process.send_signal(number)
            output, errors = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, output) == (code, "")
        assert "Traceback" not in errors
        assert "error" not in errors
    assert tree_hash(directory) == before


@pytest.mark.parametrize(
    ("target", "options", "policy"),
    (
        ("golden-0", ("--config", "cleanup.policy=compact"), "compact"),
        (f"golden-0/{0:020d}.log", (), "delete"),
    ),
    ids=("folder", "file"),
)
def test_a_partition_s_folder_or_one_file_is_shown(golden, target, options, policy):
    path = golden("segments") / target
    before = tree_hash(path.parent)
    with running("ui", path, *options) as (_, (url,)):
        status, told = answer(url, "/api/partitions/golden/0")
        assert (status, told["cleanup_policy"]) == (200, policy)
        assert answer(url, "/api/partitions")[1]["total"] == 1
    assert tree_hash(path.parent) == before


def test_the_page_of_a_served_broker_steers_it():
    arguments = ("serve", "--memory", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0")
    with running(*arguments, "--topic", "users:2", lines=2) as (process, (address, url)):
        assert address.startswith("127.0.0.1:")
        about = answer(url, "/api/about")[1]
        assert about["read_only"] is False
        assert answer(url, "/api/partitions")[1]["total"] == 2
        assert answer(url, "/api/cleaner")[1]["enabled"] is True
        process.terminate()
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize("command", ("ui", "serve"))
def test_the_log_of_a_schema_registry_decodes_values(tmp_path, command):
    """`--schema` names the registry's partition, or a directory that contains it."""
    data, registry = tmp_path / "data", tmp_path / "registry"
    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
    with Broker(registry) as broker:
        broker.create_topic("_schemas", configs={"cleanup.policy": "compact"})
        key = b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'
        value = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(schema)}
        broker.append("_schemas", key=key, value=json.dumps(value).encode())
    with Broker(data) as broker:
        broker.create_topic("orders")
        broker.append("orders", key=b"k", value=b"\0\0\0\0\x07\x54")
    where = {
        "ui": ("ui", data, "--listen", "127.0.0.1:0", "--schema", registry),
        "serve": ("serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0",
                  "--schema", registry / "_schemas-0"),
    }[command]  # fmt: skip
    with running(*where, lines=1 + (command == "serve")) as (_, lines):
        found = answer(lines[-1], "/api/partitions/orders/0/records?count=1")[1]
        assert found["records"][0]["decoded"] == {"value": {"id": 42}}


def test_each_broker_of_a_served_cluster_has_a_page_that_only_shows():
    arguments = ("serve", "--memory", "--brokers", "2", "--listen", "127.0.0.1:0")
    with running(*arguments, "--ui", "127.0.0.1:0", "--topic", "users", lines=3) as (
        process,
        lines,
    ):
        pages = [answer(url, "/api/about")[1] for url in lines[1:]]
        assert [(page["node_id"], page["read_only"]) for page in pages] == [(0, True), (1, True)]
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0


def test_the_page_of_a_served_broker_obeys_its_acls():
    arguments = ("serve", "--memory", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0")
    acls = ("--acl", "User:page describe topic:seen", "--ui-principal", "User:page")
    topics = ("--topic", "seen", "--topic", "hidden")
    with running(*arguments, *acls, *topics, lines=2) as (_, (_, url)):
        rows = answer(url, "/api/partitions")[1]["partitions"]
        assert [row["topic"] for row in rows] == ["seen"]
        assert answer(url, "/api/about")[1]["principal"] == "User:page"
        assert answer(url, "/api/partitions/hidden/0")[0] == 403


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    (
        (("ui", "nix"), 2, "no such file or directory"),
        (("ui", "--listen", "127.0.0.1"), 2, "is not HOST:PORT"),
        (("ui", "{dir}", "--listen", "127.0.0.1:70000"), 2, "the port is out of range"),
        (("serve", "--memory", "--listen", "127.0.0.1:0", "--ui", "x"), 2, "is not HOST:PORT"),
    ),
)
def test_paths_that_cannot_be_shown_are_refused(run, golden, arguments, code, message):
    directory = golden("segments")
    given = [str(each).replace("{dir}", str(directory)) for each in arguments]
    outcome = run(*given, code=code)
    assert message in outcome.stderr
    assert outcome.stdout == ""


def test_a_missing_extra_is_reported_with_the_install_command(run, golden, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("logstore.ui.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    outcome = run("ui", golden("segments"), code=2)
    assert outcome.stderr.splitlines()[-1].startswith("error: the page needs uvicorn")
    assert "pip install 'kafka-logstore[ui]'" in outcome.stderr


# --- files stay unchanged --------------------------------------------------------------------


def without_indexes(directory):
    for path in (directory / "golden-0").glob("*index"):
        path.unlink()


def damaged(directory):
    path = sorted((directory / "golden-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


BODIES = (None, {}, {"topic": "golden", "set": {"cleanup.policy": "compact"}, "unset": []})


def targets():
    places = {"topic": "golden", "partition": "0", "base": "0", "id": "g", "group": "g"}
    for route in ROUTES:
        if route.path == "/api/events":
            continue
        target = route.path
        for name in route.param_convertors:
            target = target.replace("{" + name + "}", places.get(name, "x"))
        for method in route.methods:
            yield method, target


@pytest.mark.parametrize("harm", (sound, torn_tail, without_indexes, damaged))
def test_no_request_changes_the_tree(golden, harm):
    directory = golden("segments")
    harm(directory)
    before, names = tree_hash(directory), sorted(directory.parent.iterdir())
    with (
        Broker(directory, read_only=True, on_damage="pass_over") as broker,
        Asked(broker) as page,
    ):
        broker.override_configs("golden", {"cleanup.policy": "compact"})
        statuses = {}
        for method, target in targets():
            for body in BODIES if method not in ("GET", "HEAD") else (None,):
                answer = (
                    page.post(target, body, method)
                    if body is not None
                    else page.ask(method, target)
                )
                statuses.setdefault((method, target), answer.status)
        page.call(page.context.live.poll_once())
    assert tree_hash(directory) == before
    assert sorted(directory.parent.iterdir()) == names
    if harm is sound:
        changing = [s for (method, target), s in statuses.items() if method not in ("GET", "HEAD")]
        assert [s for (method, _), s in statuses.items() if method == "GET" and s == 200]
        assert all(status in (200, 400, 403) for status in changing)


@pytest.mark.parametrize(
    ("options", "code", "stderr"),
    (
        ((), None, ""),
        (("--open",), 0, ""),
        (("--open",), 1, "note: could not start a browser: open the address above\n"),
    ),
)
def test_the_browser_is_started_if_that_is_asked_for(
    run, golden, monkeypatch, options, code, stderr
):
    opened = []

    def launch(url):
        opened.append(url)
        return code

    monkeypatch.setattr("click.launch", launch)
    monkeypatch.setattr("logstore.cli.commands.ui.Stopping.wait", lambda _: None)
    done = run("ui", golden("segments"), *options)
    assert done.stdout.startswith("http://127.0.0.1:")
    assert opened == ([done.stdout.strip()] if options else [])
    assert done.stderr == stderr


def test_an_empty_directory_is_shown_as_an_empty_broker(run, tmp_path, monkeypatch):
    shown = []

    def wait(_):
        shown.append([path.name for path in (tmp_path / "empty").iterdir()])

    monkeypatch.setattr("logstore.cli.commands.ui.Stopping.wait", wait)
    (tmp_path / "empty").mkdir()
    assert run("ui", tmp_path / "empty").stdout.startswith("http://127.0.0.1:")
    monkeypatch.chdir(tmp_path)
    assert run("ui", "empty").stdout.startswith("http://127.0.0.1:")
    assert "no such" in run("ui", "missing", code=2).stderr.lower()
    assert shown == [[], []]
