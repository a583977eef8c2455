"""Sentences for the terminal: wrapped text, bullet lists, and reasons with commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from logstore.cli.show.tables import can_print, display_text, output_width, paint
from logstore.reasons import Reason, render

_WIDTH_MAX = 100
"""Maximum width of sentences."""


def wrapped(text: str, indent: str = "", style: str = "") -> list[str]:
    """Wrap a sentence. Continuation lines are indented."""
    from textwrap import wrap

    width = min(output_width(), _WIDTH_MAX)
    text = display_text(text.replace("\n", " "))
    parts = wrap(text, width, initial_indent=indent, subsequent_indent=indent or "  ")
    return [paint(part, style) for part in parts]


def bullet_list(name: str, texts: Sequence[str], style: str = "") -> Iterator[str]:
    """Yield an empty line, a title and a bullet list of sentences, unless the list is empty."""
    if not texts:
        return
    yield ""
    yield paint(f"{name}:", style or "bold")
    bullet = "•" if can_print("•") else "-"
    for text in texts:
        first, *others = wrapped(text, "    ", "dim" if style == "dim" else "")
        yield first.replace("    ", f"  {bullet} ", 1)
        yield from others


_COMMANDS = {
    "cure.suppose_policy": "--config",
    "cure.set_policy": "logstore topic alter --set",
    "cure.force": "logstore clean --force",
    "cure.roll": "logstore clean --roll",
    "cure.salvage": "logstore salvage",
    "pass.forced": "logstore clean --force",
}
"""Command or option for the advice in a reason."""


def sentence(reason: Reason) -> str:
    """Render a reason as a sentence, followed by the command that implements its advice."""
    command = _COMMANDS.get(reason.code)
    if command is None:
        return reason.text
    return f"{reason.text} ({command})"


def sentences(reasons: Iterable[Reason], separator: str = "; ") -> str:
    """Render several reasons as a single text."""
    return separator.join(map(sentence, reasons))


def words(group: str, name: str) -> str:
    """Render a code without values: `words("condition", "policy")`."""
    return render(f"{group}.{name}", {}, name)
