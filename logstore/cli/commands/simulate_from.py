"""`logstore simulate --from`: fit a scenario to directories and show the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logstore.cli.options import Settings, note_writers
from logstore.cli.show.damage import report_all
from logstore.cli.show.output import emit, emit_lines, format_count, note
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Table
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from logstore.simulate.fitting import Fit
    from logstore.simulate.recording import Recording


def read_directory(
    settings: Settings,
    paths: Sequence[str],
    topics: Sequence[str],
    configs: Mapping[str, str] | None = None,
) -> Recording:
    """Read the topics in data directories or partition directories without changing them."""
    from logstore.cli.show.messages import Recovery, show_messages
    from logstore.runtime import raise_descriptor_limit
    from logstore.simulate.recording import record

    raise_descriptor_limit()
    show_messages(Recovery.COMPUTED)
    with ProgressBar() as bar:
        found = record(
            paths,
            topics,
            configs=configs,
            broker_config=settings.broker_config(),
            progress=lambda name, done, total: bar.update(f"reading {name}", done, total),
        )
    note_writers(found.directories)
    return found


def fit_directory(
    settings: Settings,
    paths: Sequence[str],
    topics: Sequence[str],
    configs: Sequence[tuple[str, str]],
    days: float | None,
    seed: int | None,
) -> Fit:
    """Fit a scenario to directories."""
    from logstore.config.overrides import alter_overrides
    from logstore.config.topic_keys import TOPIC_KEYS
    from logstore.simulate.fitting import DAYS, fit_recording

    own, _ = alter_overrides({}, {n: v for n, v in configs if n in TOPIC_KEYS}, ())
    recording = read_directory(settings, paths, topics, own)
    broker = {name: value for name, value in configs if name not in TOPIC_KEYS}
    return fit_recording(
        recording,
        days=DAYS if days is None else days,
        now_ms=settings.now_ms,
        seed=1 if seed is None else seed,
        broker={**settings.broker_config().given, **broker},
    )


def report(fit: Fit) -> int:
    """Print notes and damage to standard error, and return the exit code."""
    for text in fit.notes:
        note(text)
    return report_all(fit.recording.damages)


def show(fit: Fit) -> None:
    """Print the fitted workload and its accuracy."""
    columns = ("records a day", "keys", "new keys", "deletes", "values")
    rows = Table(("topic", *columns), right=columns)
    emit_lines(rows.lines(_row(fit, table) for table in fit.scenario.tree["topics"]))
    emit("")
    if fit.checks:
        heads = ("predicted", "actual", "error")
        rows = Table(("topic", "last third of the log", *heads), right=heads)
        emit_lines(
            rows.lines(
                (
                    check.topic,
                    check.what,
                    _format(check.what, check.predicted),
                    _format(check.what, check.real),
                    f"{check.error:+.1%}",
                )
                for check in fit.checks
            )
        )
        emit("")


def to_json(fit: Fit) -> dict[str, Any]:
    """Return the fitted workload and its accuracy."""
    return {
        "start_ms": fit.scenario.start_ms,
        "topics": fit.scenario.tree["topics"],
        "checks": [{**check._asdict(), "error": check.error} for check in fit.checks],
        "notes": list(fit.notes),
        "damages": [damage._asdict() for damage in fit.recording.damages],
    }


def _row(fit: Fit, table: Mapping[str, Any]) -> list[str]:
    keys, values = table["keys"], table.get("values", {})
    known = fit.recording.topics[table["name"]].keys.count
    return [
        table["name"],
        format_count(round(table["records_per_day"])),
        format_count(known),
        f"{keys.get('new_share', 0):.1%}",
        f"{table.get('deletes', {}).get('share', 0):.1%}",
        _values(values),
    ]


def _values(values: Mapping[str, Any]) -> str:
    if "min_bytes" in values:
        return f"{values['min_bytes']} to {values['max_bytes']} bytes"
    return f"{values.get('bytes', 100)} bytes"


def _format(what: str, value: float) -> str:
    return format_size(round(value)) if what == "bytes" else format_count(round(value))
