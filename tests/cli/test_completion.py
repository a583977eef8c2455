"""Shell completions, and the scripts that request them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from logstore import Broker
from logstore.cli.main import COMMANDS, main
from tests.cli.test_process import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def topics(data_dir, monkeypatch):
    monkeypatch.setenv("LOGSTORE_DATA_DIR", str(data_dir))
    with Broker(data_dir) as broker:
        for name in ("users", "user-events", "orders"):
            broker.create_topic(name, 2)


def completed(*words):
    """Return the completions of the last of some words."""
    asked = BashComplete(main, {}, "logstore", "_LOGSTORE_COMPLETE")
    return [(item.type, item.value) for item in asked.get_completions(list(words[:-1]), words[-1])]


def plain(*values):
    return [("plain", value) for value in values]


def test_commands_are_completed_without_importing_them():
    assert completed("ins") == plain("inspect")
    assert completed("topic", "de") == plain("describe", "delete")
    code = (
        "import sys; from tests.cli.test_completion import completed; print(completed(''));"
        "heavy = ('logstore.cli.commands.', 'logstore.bench');"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    names, modules = done.stdout.splitlines()
    assert all(f"'{name}'" in names for name in COMMANDS)
    assert modules == "[]"


@pytest.mark.usefixtures("topics")
def test_options_choices_topics_and_paths(data_dir, tmp_path):
    assert completed("inspect", "--su") == plain("--summary")
    assert completed("inspect", "--sort", "") == plain("size", "ratio", "lag", "frees")
    assert completed("read", "user") == plain("user-events", "users")
    assert completed("topic", "delete", "o") == plain("orders")
    assert completed("inspect", "ord") == plain("orders")
    assert completed("inspect", "./ord") == [("file", "./ord")]
    assert completed("inspect", "x") == [("file", "x")]
    assert completed("read", "x") == [("file", "x")]
    assert completed("topic", "delete", "x") == []
    assert completed("check", "us") == [("file", "us")]
    with Broker(tmp_path / "other") as broker:
        broker.create_topic("uses")
    assert completed("read", "--data-dir", str(tmp_path / "other"), "us") == plain("uses")
    assert completed("--data-dir", str(tmp_path / "other"), "read", "us") == plain("uses")
    assert completed("--data-dir", str(tmp_path / "none"), "read", "us") == [("file", "us")]


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts(run, shell, monkeypatch, tmp_path):
    script = run("completion", shell).stdout
    assert f"_LOGSTORE_COMPLETE={shell}_complete" in script
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert run("completion").stdout == script
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    said = run("completion", "--install").stdout
    (path,) = (path for path in tmp_path.rglob("*logstore*") if path.is_file())
    assert said.startswith(f"{path} written")
    assert path.read_text() == script


@pytest.mark.parametrize(
    ("shell", "place", "note"),
    (
        (
            "bash",
            ".local/share/bash-completion/completions/logstore",
            "requires the package bash-completion, which most systems have",
        ),
        (
            "zsh",
            ".zfunc/_logstore",
            "add to ~/.zshrc if missing: fpath+=HOME/.zfunc; autoload -Uz compinit && compinit",
        ),
        ("fish", ".config/fish/completions/logstore.fish", None),
    ),
)
def test_a_script_is_installed_where_its_shell_looks(
    run, shell, place, note, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    done = run("completion", shell, "--install")
    assert done.stdout == f"{tmp_path / place} written; new shells complete logstore\n"
    expected = "" if note is None else f"note: {note.replace('HOME', str(tmp_path))}\n"
    assert done.stderr == expected
    for name, given in (("XDG_DATA_HOME", "bash"), ("XDG_CONFIG_HOME", "fish")):
        if shell == given:
            monkeypatch.setenv(name, str(tmp_path / "xdg"))
            path = tmp_path / "xdg" / "/".join(place.split("/")[-3:])
            assert run("completion", shell, "--install").stdout.startswith(f"{path} written")


def test_an_unknown_shell_must_be_named(run, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "name a shell: bash, zsh, fish" in run("completion", code=2).stderr


def test_bash_takes_the_script(run, topics, tmp_path):
    script = tmp_path / "script"
    script.write_text(run("completion", "bash").stdout)
    program = tmp_path / "logstore"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{PROGRAM[-1]}" "$@"\n')
    program.chmod(0o755)
    code = (
        f"source {script}; COMP_WORDS=({program} read use); COMP_CWORD=2;"
        f' _logstore_completion {program}; echo "${{COMPREPLY[@]}}"; complete -p logstore'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stdout.splitlines()[0] == "user-events users", done.stderr
    assert "_logstore_completion" in done.stdout.splitlines()[1]
