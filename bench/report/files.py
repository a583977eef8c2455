"""Files of a harness: the result as JSON, and its page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from logstore.bench.report.result import Run
from logstore.cli.show.output import print_stderr


def add_file_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add options for directories and files. `default` describes the default result file."""
    parser.add_argument(
        "--scratch", metavar="DIR", help="directory for data (default: temporary directory)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the result as JSON, and its page next to it "
        f"(default: {default}; no files with --only)",
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="only write the page of an existing result"
    )


def keep(result: Run, out: Path, page: Callable[[Path], str], suffix: str) -> None:
    """Write a result and its page."""
    result.write(out)
    print_stderr(f"written: {out}")
    write_page(out, page, suffix)


def write_page(result: Path, page: Callable[[Path], str], suffix: str) -> None:
    """Write the page of a result file next to it. Without Jinja2, print how to install it."""
    try:
        text = page(result)
    except ImportError as error:
        remedy = f"pip install 'kafka-logstore[bench]', then use --page {result}"
        print_stderr(f"page not written: {error}; {remedy}")
        return
    target = result.with_suffix(suffix)
    target.write_text(text, encoding="utf-8")
    print_stderr(f"written: {target}")
