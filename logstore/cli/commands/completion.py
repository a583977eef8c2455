"""`logstore completion`: print or install a shell completion script."""

from __future__ import annotations

import os
from pathlib import Path

import click

from logstore.cli.options import Settings, command
from logstore.cli.show.output import emit, note

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_LOGSTORE_COMPLETE"
PROGRAM = "logstore"


@command(
    "completion",
    examples=[
        "logstore completion --install",
        "logstore completion zsh --install",
        'eval "$(logstore completion bash)"',
    ],
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Install the script for the current user.")
def completion(settings: Settings, shell: str | None, install: bool) -> None:
    """Print or install a shell completion script for commands, options and topics.

    Supports bash (4.4 or newer), zsh and fish. [default: the shell in $SHELL]
    """
    shell = shell or _shell_of_user()
    script = _script(shell)
    if not install:
        emit(script)
        return
    path = _place(shell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{script}\n", encoding="utf-8")
    emit(f"{path} written; new shells complete {PROGRAM}")
    if shell == "bash":
        note("requires the package bash-completion, which most systems have")
    elif shell == "zsh":
        note(f"add to ~/.zshrc if missing: fpath+={path.parent}; autoload -Uz compinit && compinit")


def _shell_of_user() -> str:
    name = os.environ.get("SHELL", "").rpartition("/")[2]
    if name not in SHELLS:
        raise click.UsageError(f"name a shell: {', '.join(SHELLS)}")
    return name


def _script(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from logstore.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(main, {}, PROGRAM, VARIABLE)
    # `source` would run bash to check its version, but the script may be for a different machine.
    return (complete.source_template % complete.source_vars()).strip()


def _place(shell: str) -> Path:
    """Return the path from which the shell loads the user's completion scripts."""
    home = Path.home()
    if shell == "bash":
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
        return data / "bash-completion/completions" / PROGRAM
    if shell == "zsh":
        return home / ".zfunc" / f"_{PROGRAM}"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return config / "fish/completions" / f"{PROGRAM}.fish"
