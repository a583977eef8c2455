"""The files of a harness: a result as JSON, and a page that is made from it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from logstore.bench.report.result import Run
from logstore.cli.show.output import print_stderr


def add_file_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options that name folders and files; `default` names the result's own."""
    parser.add_argument("--scratch", metavar="DIR", help="where data go (default: temporary)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the result as JSON, and its page beside it "
        f"(default: {default}; nothing with --only)",
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write a result's page anew, only"
    )


def keep(result: Run, out: Path, page: Callable[[Path], str], suffix: str) -> None:
    """Write a result and its page."""
    result.write(out)
    print_stderr(f"written: {out}")
    write_page(out, page, suffix)


def write_page(result: Path, page: Callable[[Path], str], suffix: str) -> None:
    """Write the page of a result's file beside it; without Jinja2 say how to get it."""
    try:
        text = page(result)
    except ImportError as error:
        print_stderr(f"no page: {error}; pip install 'kafka-logstore[bench]', then --page {result}")
        return
    target = result.with_suffix(suffix)
    target.write_text(text, encoding="utf-8")
    print_stderr(f"written: {target}")
