from __future__ import annotations

import re

import pytest

from logstore.cli import main as program
from tools import cli_docs

ALL = {path: (command, context) for path, command, context in cli_docs.commands()}


@pytest.mark.parametrize("path", ALL)
def test_command_has_help_an_example_and_the_shared_options(path):
    command, context = ALL[path]
    text = command.get_help(context)
    assert command.help
    assert "Examples:" in text
    assert any(line.strip().startswith("logstore ") for line in text.splitlines())
    for option in ("--data-dir", "--config-file", "--now", "--format", "--debug"):
        assert option in text
    undescribed = [
        param.name
        for param in command.params
        if param.param_type_name == "option" and not getattr(param, "help", None)
    ]
    assert undescribed == []


@pytest.mark.parametrize("path", ALL)
def test_command_has_a_docs_entry(path):
    assert f"# {path}\n" in cli_docs.TARGET.read_text(encoding="utf-8")


def test_docs_are_current():
    assert cli_docs.TARGET.read_text(encoding="utf-8") == cli_docs.text(), "run: make docs"


@pytest.mark.parametrize("path", ALL)
def test_help_of_a_command_through_the_program(run, path):
    assert run(*path.split()[1:], "--help").stdout.startswith(f"Usage: {path} ")


def test_top_level_help_lists_commands_that_exist_only(run):
    text = run("--help").stdout
    own = ("topic", "append", "read", "roll", "clean", "explain", "retain", "delete-records")
    for name in (
        *own,
        "offsets",
        "inspect",
        "stats",
        "diff",
        "erasure",
        "check",
        "dump",
        "export",
        "simulate",
        "warmup",
    ):
        assert f"\n  {name} " in text


def words_of(text):
    """The significant words of a text, without plurals."""
    words = re.findall(r"[a-z-]{4,}", text.lower())
    return [word.rstrip("s") for word in words if word not in ("their", "what", "ahead", "does")]


def test_one_line_helps_agree_with_the_commands():
    """The table at the top is static; it must agree with the commands' own help."""
    for name, (_, line) in program.COMMANDS.items():
        if f"logstore {name}" in ALL:
            command = ALL[f"logstore {name}"][0]
            assert command.name == name
            told = words_of(command.help)
            verb, *rest = words_of(line)
            assert verb == told[0], f"{name}: {line!r} does another thing than its help"
            missing = [word for word in rest if word not in told]
            assert len(missing) <= len(rest) / 2, f"{name}: {missing} of {line!r}"


def test_no_arguments_show_the_help(run):
    shown = run(code=None)
    assert "Commands:" in shown.stdout + shown.stderr


def test_version(run):
    assert run("--version").stdout.startswith("logstore, version ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("apend", "t"), "unknown command 'apend'; did you mean append?"),
        (("inspect", "--depe"), "--depe"),
        (("inspect", "--format", "xml"), "'xml' is not one of"),
        (("inspect", "--now", "soon"), "'soon' is not a time"),
        (
            ("inspect", "--config-file", "none.properties"),
            "file none.properties does not exist",
        ),
        (("roll",), "Missing argument 'TOPIC'"),
    ),
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, arguments, message):
    refused = run(*arguments, code=2)
    assert message in refused.stderr
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1


def test_shared_options_are_understood_before_a_command_too(run, data_dir, tmp_path):
    run("topic", "create", "t")
    other = tmp_path / "other"
    run("--data-dir", other, "topic", "create", "u")
    assert (
        run("topic", "--data-dir", other, "--format", "json", "list").json["topics"][0]["name"]
        == "u"
    )
    assert run("--data-dir", other, "topic", "list", "--data-dir", data_dir).stdout.count("t ") == 1


def test_several_data_directories(run, tmp_path):
    dirs = ("--data-dir", tmp_path / "a", "--data-dir", tmp_path / "b")
    run("topic", "create", "t", "--partitions", 4, *dirs)
    assert len(list((tmp_path / "a").glob("t-*"))) == 2
    assert len(list((tmp_path / "b").glob("t-*"))) == 2
    assert len(run("inspect", "t", *dirs, "--format", "json").json["partitions"]) == 4


def test_data_directories_of_the_config_file(run, tmp_path, monkeypatch):
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path / 'x'}\nno.such.key=1\n")
    from click.testing import CliRunner

    arguments = ["topic", "create", "t", "--config-file", str(properties)]
    result = CliRunner(env={"LOGSTORE_DATA_DIR": None}).invoke(program.main, arguments)
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "x" / "t-0").is_dir()
    assert "note: ignoring unknown broker key no.such.key" in result.stderr


def test_default_data_directory(run, tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    result = CliRunner(env={"LOGSTORE_DATA_DIR": None}).invoke(
        program.main, ["topic", "create", "t"]
    )
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "logstore-data" / "t-0").is_dir()


def test_traceback_only_with_debug(run):
    plain = run("inspect", "none", code=2)
    debug = run("inspect", "none", "--debug", code=2)
    assert "Traceback" not in plain.stderr
    assert debug.stderr.startswith("Traceback")
    assert debug.stderr.endswith(plain.stderr)


def test_an_internal_error_is_reported_as_such(run, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("logstore.cli.options.Settings.open_broker", fail)
    broken = run("inspect", code=1)
    assert broken.stderr == (
        "error: unexpected RuntimeError: two lines; this is a bug, --debug shows the traceback\n"
    )


def test_io_failure_is_exit_code_3(run, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    failed = run("topic", "create", "t", "--data-dir", path / "below", code=3)
    assert failed.stderr.startswith("error: ")


def register(tmp_path, monkeypatch, *entries):
    """Install a distribution that registers commands, on the import path of this test."""
    (tmp_path / "extra_commands.py").write_text(
        "import click\n@click.command('hello')\ndef hello():\n    print('hello')\nnumber = 3\n"
    )
    metadata = tmp_path / "extra-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "\n".join(["[console_scripts]", "x = y:z", "", f"[{program.ENTRY_POINTS}]", *entries])
        + "\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_other_packages_register_commands(run, tmp_path, monkeypatch):
    register(
        tmp_path,
        monkeypatch,
        "hello = extra_commands:hello",
        "broken = no_such_module:main",
        "number = extra_commands:number",
        "read = extra_commands:hello",
    )
    text = run("--help").stdout
    assert "\n  hello " in text
    assert "\n  broken " in text
    assert "\n  x " not in text
    assert "From extra." in text
    assert run("hello").stdout == "hello\n"
    broken = run("broken", code=1)
    assert "command 'broken' (no_such_module:main) cannot be loaded" in broken.stderr
    assert "is not a click command" in run("number", code=1).stderr
    assert "Missing argument 'TOPIC_OR_PATH'" in run("read", code=2).stderr
