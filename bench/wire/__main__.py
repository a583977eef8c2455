"""`python -m logstore.bench.wire`: the harness of `make bench-wire`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from logstore.bench.report.files import add_file_options, keep, write_page
from logstore.bench.report.machine import RunTimer
from logstore.bench.rivals.brokers import contestants
from logstore.bench.rivals.kafka import Unavailable
from logstore.bench.wire.conformance import check_conformance
from logstore.bench.wire.measuring import Runner, Shape
from logstore.bench.wire.result import Result, Side, lines, read_result
from logstore.cli.show.output import emit_lines, print_stderr

RESULTS = Path(__file__).parents[1] / "results" / "wire"
PATIENCE_S = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the result file and its page, and print the tables."""
    options = _parser().parse_args(arguments)
    if options.page is not None:
        write_page(options.page, _page, ".md")
        return 0
    shape = Shape(options.messages, options.message_bytes, options.rounds)
    try:
        result = measure(shape, options.only, options.patience, print_stderr, options.scratch)
    except (Unavailable, LookupError) as error:
        print_stderr(f"error: {error.args[0]}")
        return 2
    emit_lines(lines(result))
    out = options.out or (None if options.only else RESULTS / f"{result.made_at[:10]}.json")
    if out is not None:
        keep(result, out, _page, ".md")
    return 0


def measure(
    shape: Shape,
    only: Sequence[str],
    patience_s: float,
    report: Callable[[str], None],
    scratch: str | None = None,
) -> Result:
    """Measure all contestants, or those in `only`, in alternating rounds.

    Raises
    ------
    Unavailable
        The peers need a checkout.
    LookupError
        A name is unknown. The message lists all contestants.
    """
    available = contestants()
    unknown = set(only) - {each.name for each in available}
    if unknown:
        names = ", ".join(each.name for each in available)
        raise LookupError(f"unknown broker {', '.join(sorted(unknown))}; the brokers are: {names}")
    watch = RunTimer()
    missing = {}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        runners: list[Runner] = []
        for contestant in available:
            if only and contestant.name not in only:
                continue
            runner = Runner(contestant, home, shape)
            report(f"starting {contestant.title}")
            try:
                runner.start()
            except Unavailable as error:
                missing[contestant.title] = str(error)
                continue
            stack.callback(runner.serving.stop)
            runners.append(runner)
        for number in range(shape.rounds + 1):
            for runner in runners:
                report(f"round {number} of {shape.rounds}: {runner.contestant.title}")
                runner.round(number)
        sides = []
        for runner in runners:
            report(f"checking conformance: {runner.contestant.title}")
            samples = runner.samples()
            truths = check_conformance(runner.serving.bootstrap, runner.apis, patience_s=patience_s)
            name, title = runner.contestant.name, runner.contestant.title
            sides.append(Side(name, title, samples, truths))
    return Result(
        **watch.facts(),
        messages=shape.messages,
        message_bytes=shape.message_bytes,
        rounds=shape.rounds,
        sides=sides,
        missing=missing,
    )


def _page(path: Path) -> str:
    """Render the tables of a result file."""
    return "\n".join(("# Brokers compared over the wire", "", *lines(read_result(path)), ""))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m logstore.bench.wire", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="brokers to measure; repeatable"
    )
    shape = Shape()
    parser.add_argument("--messages", type=int, default=shape.messages, help="messages per round")
    parser.add_argument(
        "--message-bytes", type=int, default=shape.message_bytes, help="size of a message"
    )
    parser.add_argument(
        "--rounds", type=int, default=shape.rounds, help="measured rounds, after a warm-up round"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_S,
        metavar="SECONDS",
        help="maximum time to wait for a cleaning pass",
    )
    add_file_options(parser, "bench/results/wire/DATE.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
