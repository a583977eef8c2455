"""Values of options, and what commands are given."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from logstore import Acl, Broker, runtime
from logstore.cli import listener_options, options
from logstore.cli.commands.serve import WantedTopic, _create, _opened, to_topics
from logstore.cli.commands.simulate_from import read_directory
from logstore.cli.listener_options import MECHANISMS, USERS_VARIABLE, ListenerOptions, to_acls
from logstore.cli.options import (
    Settings,
    key_of,
    note_writers,
    to_address,
    to_pairs,
    unknown_topic,
    writers_of,
)
from logstore.errors import InvalidConfigurationError
from logstore.runtime import DiskFileSystem
from tools import cli_docs

CONTEXT = click.Context(click.Command("c"))
PARAMETER = click.Option(["--o"])


def parsed(read, value):
    """Return the value that a callback parses, or the message of its refusal."""
    try:
        return read(CONTEXT, PARAMETER, value)
    except click.BadParameter as error:
        return error.message


def test_default_settings():
    assert Settings()._asdict() == {
        "data_dirs": (),
        "config_file": None,
        "now_ms": None,
        "output": "table",
        "full": False,
        "escape_formulas": False,
        "debug": False,
        "as_recovered": False,
        "accept_data_loss": False,
    }
    for output, as_table, as_items in (
        ("table", True, False),
        ("json", False, False),
        ("jsonl", False, True),
        ("csv", False, True),
    ):
        settings = Settings(output=output)
        assert (settings.as_table, settings.as_items) == (as_table, as_items)
    assert Settings(now_ms=5).clock().now_ms() == 5


@pytest.mark.parametrize(
    ("recovered", "accepted", "read", "written"),
    (
        (False, False, "pass_over", "refuse"),
        (True, False, "recover", "refuse"),
        (False, True, "pass_over", "recover"),
    ),
)
def test_damage_is_handled_as_the_options_say(recovered, accepted, read, written):
    settings = Settings(as_recovered=recovered, accept_data_loss=accepted)
    assert settings._on_damage(read_only=True) == read
    assert settings._on_damage(read_only=False) == written


@pytest.mark.parametrize(
    ("value", "expected"),
    (
        ((), ()),
        (("a=b", " c =d=e", "f="), (("a", "b"), ("c", "d=e"), ("f", ""))),
        (("a",), "'a' is not KEY=VALUE"),
        (("=b",), "'=b' is not KEY=VALUE"),
    ),
)
def test_pairs(value, expected):
    assert parsed(to_pairs, value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    (
        (None, None),
        ("h:0", ("h", 0)),
        ("[::1]:92", ("::1", 92)),
        (":92", ("", 92)),
        ("h", "'h' is not HOST:PORT"),
        ("92", "'92' is not HOST:PORT"),
        ("h:", "'h:' is not HOST:PORT"),
        ("h:٣", "'h:٣' is not HOST:PORT"),
    ),
)
def test_addresses(value, expected):
    assert parsed(to_address, value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    (
        (("t",), (WantedTopic("t", 1, ()),)),
        (
            ("t:3", "u:2:a=b:c=d"),
            (WantedTopic("t", 3, ()), WantedTopic("u", 2, (("a", "b"), ("c", "d")))),
        ),
        (("t:0",), "'t:0' is not NAME:PARTITIONS:K=V"),
        ((":1",), "':1' is not NAME:PARTITIONS:K=V"),
        (("t:x",), "'t:x' is not NAME:PARTITIONS:K=V"),
        (("t:1:a",), "'a' is not KEY=VALUE"),
    ),
)
def test_topics_to_create(value, expected):
    assert parsed(to_topics, value) == expected


FORM = "[deny] PRINCIPAL OPERATION TYPE:NAME [prefixed]"


@pytest.mark.parametrize(
    ("value", "expected"),
    (
        ((), ()),
        (("User:a read topic:t",), (Acl("User:a", "read", "topic", "t"),)),
        (("allow User:a read topic:t literal",), (Acl("User:a", "read", "topic", "t"),)),
        (
            ("deny User:a all group:g- prefixed", "User:b alter cluster"),
            (
                Acl("User:a", "all", "group", "g-", "prefixed", "deny"),
                Acl("User:b", "alter", "cluster", "kafka-cluster"),
            ),
        ),
        (("User:a read topic:a:b",), (Acl("User:a", "read", "topic", "a:b"),)),
        (("User:a read",), f"'User:a read' is not {FORM}"),
        (("",), f"'' is not {FORM}"),
        (("deny",), f"'deny' is not {FORM}"),
        (("User:a read topic:t other",), f"'User:a read topic:t other' is not {FORM}"),
    ),
)
def test_acls(value, expected):
    assert parsed(to_acls, value) == expected


def test_a_wrong_acl_is_quoted():
    message = parsed(to_acls, ("User:a sing topic:t",))
    assert message.startswith("'User:a sing topic:t': ")
    assert parsed(to_acls, ("User:a read topic",)).startswith("'User:a read topic': ")


def listener(**given):
    absent = dict.fromkeys(("users_file", "tls_cert", "tls_key", "tls_generate", "acls_file"))
    lists = dict.fromkeys(("mechanisms", "acls", "super_users"), ())
    return ListenerOptions(**absent | lists | given)


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        (" ann = p=q \n\n  # no\nbob=x", {"ann": " p=q ", "bob": "x"}),
        ("ann=p\nbob", "WHERE: line 2 is not NAME=PASSWORD"),
        ("=p", "WHERE: line 1 is not NAME=PASSWORD"),
        ("ann=", "WHERE: line 1 is not NAME=PASSWORD"),
        ("ann=p\n#\nann=q", "WHERE: line 3: duplicate user 'ann'"),
        ("# none\n", "WHERE: no users"),
    ),
)
def test_users(text, expected):
    if isinstance(expected, dict):
        assert listener_options._users_of(text, "WHERE") == expected
        return
    with pytest.raises(InvalidConfigurationError) as raised:
        listener_options._users_of(text, "WHERE")
    assert str(raised.value) == expected


def test_sources_of_sasl_users(tmp_path, monkeypatch):
    monkeypatch.delenv(USERS_VARIABLE, raising=False)
    assert listener().sasl() is None
    with pytest.raises(click.UsageError) as raised:
        listener(mechanisms=("PLAIN",)).sasl()
    assert raised.value.message == f"--sasl-mechanism requires --sasl-users or {USERS_VARIABLE}."
    monkeypatch.setenv(USERS_VARIABLE, "ann")
    with pytest.raises(InvalidConfigurationError) as refused:
        listener().sasl()
    assert str(refused.value) == f"{USERS_VARIABLE}: line 1 is not NAME=PASSWORD"
    path = tmp_path / "users"
    path.write_text("bob=x\n\n")
    for given, mechanisms in ((("PLAIN",), ("PLAIN",)), ((), MECHANISMS)):
        credentials = listener(users_file=str(path), mechanisms=given).sasl()
        assert tuple(credentials.mechanisms) == mechanisms
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidConfigurationError) as refused:
        listener(users_file=str(path)).sasl()
    assert str(refused.value).startswith(f"{path} is not UTF-8: ")


@pytest.mark.parametrize(
    ("given", "message"),
    (
        (
            {"tls_generate": "a", "tls_cert": "b"},
            "--tls-generate excludes --tls-cert and --tls-key.",
        ),
        (
            {"tls_generate": "a", "tls_key": "b"},
            "--tls-generate excludes --tls-cert and --tls-key.",
        ),
        ({"tls_key": "b"}, "--tls-key requires --tls-cert."),
    ),
)
def test_options_of_tls_that_exclude_each_other(given, message):
    with pytest.raises(click.UsageError) as raised:
        listener(**given).tls("localhost")
    assert raised.value.message == message


def test_files_of_tls_are_named(tmp_path):
    assert listener().tls("localhost") is None
    cert, key = tmp_path / "cert", tmp_path / "key"
    for path in (cert, key):
        path.write_text("")
    for given, files in (
        ({"tls_cert": str(cert)}, f"{cert}"),
        ({"tls_cert": str(cert), "tls_key": str(key)}, f"{cert} and {key}"),
    ):
        with pytest.raises(InvalidConfigurationError) as raised:
            listener(**given).tls("localhost")
        assert str(raised.value).startswith(f"cannot serve TLS with {files}: ")


def test_a_generated_authority_is_written_and_named(tmp_path, monkeypatch, capsys):
    class Generated:
        ca_pem = b"PEM"
        context = object()

    hosts = []
    monkeypatch.setattr(
        "logstore.security.tls.generate_tls", lambda host: hosts.append(host) or Generated
    )
    path = tmp_path / "ca.pem"
    assert listener(tls_generate=str(path)).tls("example.org") is Generated.context
    assert (hosts, path.read_bytes()) == (["example.org"], b"PEM")
    note = f"note: clients must trust the certificate authority in {path}\n"
    assert capsys.readouterr().err == note


def test_the_authorizer_joins_file_and_options(tmp_path, capsys):
    assert listener().authorizer() is None
    acl = Acl("User:a", "read", "topic", "t")
    by_option = listener(acls=(acl,), super_users=("User:root",)).authorizer()
    assert (list(by_option.acls()), sorted(by_option.super_users)) == ([acl], ["User:root"])
    path = tmp_path / "acls.json"
    path.write_text(by_option.to_json())
    other = Acl("User:b", "write", "topic", "t")
    joined = listener(acls_file=str(path), acls=(other,), super_users=("User:x",)).authorizer()
    assert set(joined.acls()) == {acl, other}
    assert sorted(joined.super_users) == ["User:root", "User:x"]
    path.write_text("[")
    with pytest.raises(InvalidConfigurationError) as raised:
        listener(acls_file=str(path)).authorizer()
    assert str(raised.value).startswith(f"{path}: ")
    opened = _opened(listener(super_users=("User:x",)), "localhost")
    assert (opened["sasl"], opened["tls"]) == (None, None)
    assert sorted(opened["authorizer"].super_users) == ["User:x"]
    assert capsys.readouterr().err == "note: no authentication: every client is User:ANONYMOUS\n"
    _opened(listener(), "localhost")
    assert capsys.readouterr().err == ""


def test_a_topic_that_exists_is_left_as_it_is(capsys):
    with Broker() as broker:
        _create(broker, WantedTopic("t", 2, (("retention.ms", "5"),)))
        assert capsys.readouterr().err == ""
        assert (len(broker.partitions("t")), broker.topic("t").configs) == (
            2,
            {"retention.ms": "5"},
        )
        _create(broker, WantedTopic("t", 3, ()))
        assert len(broker.partitions("t")) == 2
    note = "note: topic t already exists with 2 partitions; it is not changed\n"
    assert capsys.readouterr().err == note


def test_writers_are_other_processes(monkeypatch, capsys):
    holders = {"a/.lock": 7, "b/.lock": None, "c/.lock": os.getpid(), "d/.lock": 0}
    monkeypatch.setattr(DiskFileSystem, "lock_holder", lambda _, path: holders[path])
    assert writers_of("abcd") == {"a": 7, "d": 0}
    note_writers("abcd")
    assert capsys.readouterr().err == (
        "note: process 7 is writing to a: the output may miss its latest changes\n"
        "note: another process is writing to d: the output may miss its latest changes\n"
    )


def test_an_unknown_topic_is_named_with_similar_ones():
    names = [f"n{number}" for number in range(5)]
    start = "unknown topic 'users'; "
    assert unknown_topic("users", ["user", "usersx", "z"]) == (
        f"{start}did you mean usersx or user?"
    )
    assert unknown_topic("users", []) == f"{start}the data directory has no topics"
    assert unknown_topic("users", names) == f"{start}the topics are: n0, n1, n2, n3, n4"
    assert unknown_topic("users", [*names, "x"]) == f"{start}the topics are: n0, n1, n2, n3, n4 …"


def test_keys():
    assert key_of(None, None) is None
    assert key_of("", None) == b""
    assert key_of("a\udcff", None) == b"a\xff"
    assert key_of(None, "/wA=") == b"\xff\x00"
    for given, message in (
        (("", ""), "--key and --key-base64 are mutually exclusive"),
        ((None, "%"), "--key-base64 '%' is not base64: "),
    ):
        with pytest.raises(click.UsageError) as raised:
            key_of(*given)
        assert raised.value.message.startswith(message)


def test_loading_one_partition_shows_no_progress():
    class Step:
        done, topic_partition = 1, "t-0"

        def __init__(self, total):
            self.total = total

    shown = []

    class Bar:
        def update(self, *given):
            shown.append(given)

    for total in (1, 2):
        options._show_load(Bar(), Step(total))
    assert shown == [("recovering", 1, 2, "t-0")]


# Properties that the help may not show, such as whether an option is repeatable.
HIDDEN = {
    "multiple": lambda each: each.multiple,
    "callback": lambda each: getattr(each.callback, "__name__", ""),
    "eager": lambda each: each.is_eager,
    "default": lambda each: each.default if isinstance(each.default, str | int | float) else None,
    "required": lambda each: each.required,
    "type": lambda each: re.sub(" object at 0x.*?>", ">", repr(each.type)),
    "file": lambda each: (
        (each.type.exists, each.type.dir_okay, each.type.writable)
        if isinstance(each.type, click.Path)
        else None
    ),
}


def test_parameters_of_all_commands():
    """`expected/parameters.txt` has the result of `parameters`."""
    path = Path(__file__).with_name("expected") / "parameters.txt"
    assert parameters() == path.read_text("utf-8")


def parameters() -> str:
    lines = []
    for path, command, _ in cli_docs.commands():
        for each in command.params:
            if isinstance(each, options.SharedOption) and path != "logstore topic":
                continue
            found = {name: read(each) for name, read in HIDDEN.items()}
            shown = ", ".join(f"{name} {value}" for name, value in found.items() if value)
            lines.append(f"{path} {each.name}: {shown}\n")
    return "".join(dict.fromkeys(lines))


@pytest.mark.parametrize(
    "opening",
    (
        lambda settings, path: settings.open_broker(in_memory=True),
        lambda settings, path: settings.open_cluster(1, in_memory=True, racks=()),
        lambda settings, path: read_directory(settings, str(path), ()),
    ),
    ids=("broker", "cluster", "recording"),
)
def test_many_files_may_be_open(monkeypatch, tmp_path, opening):
    class RaisedError(Exception):
        pass

    def note():
        raise RaisedError

    monkeypatch.setattr(runtime, "raise_descriptor_limit", note)
    with pytest.raises(RaisedError):
        opening(Settings(), tmp_path)
