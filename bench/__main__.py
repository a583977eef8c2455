"""`python -m logstore.bench`: the harness of `make bench` and `make bench-full`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from logstore.bench.micro.logs import MIB
from logstore.bench.micro.setting import Setting
from logstore.bench.report.files import add_file_options, keep, write_page
from logstore.bench.report.page import page
from logstore.bench.report.result import Result, read_result
from logstore.bench.report.terminal import table_lines
from logstore.bench.suite import all_jobs, run, select_jobs
from logstore.cli.show.output import emit_lines, print_stderr
from logstore.jit import compile_always

RESULTS = Path(__file__).with_name("results")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the result file and print its table."""
    options = _parser().parse_args(arguments)
    if options.list:
        emit_lines(name for job in all_jobs() for name in job.names)
        return 0
    if options.page is not None:
        write_page(options.page, _page, ".html")
        return 0
    try:
        jobs = select_jobs(options.only, full=options.full)
    except LookupError as error:
        print_stderr(f"error: {error.args[0]}")
        return 2
    compile_always()  # measure compiled code even if the work is small
    kind = "part" if options.only else "full" if options.full else "quick"
    with tempfile.TemporaryDirectory(prefix="logstore-bench-", dir=options.scratch) as scratch:
        setting = Setting(
            Path(scratch),
            total_bytes=options.mib * MIB,
            repeats=options.repeats,
            warmups=options.warmups,
            has_peers=not options.no_peers,
            report=print_stderr,
        )
        try:
            result = run(jobs, setting, kind=kind)
        finally:
            setting.close()
    emit_lines(table_lines(result))
    out = options.out or (_default_out(result) if kind != "part" else None)
    if out is not None:
        keep(result, out, _page, ".html")
    return 0


def _default_out(result: Result) -> Path:
    """Return the default file of a complete result, with its date in the name."""
    return RESULTS / f"{result.made_at[:10]}-{result.kind}.json"


def _page(path: Path) -> str:
    """Render the page of a result file."""
    return page(read_result(path))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m logstore.bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the lines and exit")
    parser.add_argument("--full", action="store_true", help="measure all lines, not only main ones")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="lines to measure, such as clean/* or api/append; repeatable",
    )
    parser.add_argument("--mib", type=int, default=256, help="size of a log in MiB (default 256)")
    parser.add_argument("--repeats", type=int, default=3, help="samples per line (default 3)")
    parser.add_argument("--warmups", type=int, default=2, help="warm-up runs per line (default 2)")
    parser.add_argument("--no-peers", action="store_true", help="measure only this engine")
    add_file_options(parser, "bench/results/DATE-SET.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
