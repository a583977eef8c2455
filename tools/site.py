"""Build the documentation site into build/site: `make docs-site`.

The repository's pages are copied to build/site-source with the same layout, so
that their links remain valid. A link to a file that is not a page becomes its name. The build is
strict and needs no network: a warning, a link without a target, or a page outside the navigation
fails it.
"""

from __future__ import annotations

import argparse
import html.parser
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import cache, partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import logstore

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
ASSETS = {".png", ".svg", ".css", ".js"}


@cache
def pages() -> list[Path]:
    """Return the pages of the site: those at the root of the repository and in docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def on_site(target: str, page: Path) -> bool:
    """Return whether a link of a page leads to the site or to another host."""
    path = (page.parent / urlsplit(target).path).resolve()
    return "://" in target or target.startswith("#") or path in pages() or path.suffix in ASSETS


def for_the_site(text: str, page: Path) -> str:
    """Return the text of a page, with the text of links to other files in place of these links."""
    dead = [
        name
        for name, target in re.findall(r"^\[(\w+)\]: (\S+)$", text, re.MULTILINE)
        if not on_site(target, page)
    ]
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    for number in range(0, len(parts), 2):  # blocks of code are between them
        part = re.sub(
            r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)",
            lambda found: found[0] if on_site(found[2], page) else found[1],
            parts[number],
        )
        for name in dead:
            part = re.sub(rf"^\[{name}\]: .*\n", "", part, flags=re.MULTILINE)
            part = re.sub(rf"\[([^\[\]]*)\]\[{name}\]", r"\1", part)
        parts[number] = with_lists(part)
    return "".join(parts)


def with_lists(text: str) -> str:
    """Return Markdown of forges as Markdown of the site, where lists are stricter.

    There a list needs an empty line before it, and a nested list four spaces for each level.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        item = re.match(r"( *)(?:[-*]|\d\.) ", line)
        if item and lines and lines[-1].strip() and not is_in_list(lines):
            lines.append("")
        lines.append(f"{item[1]}{line}" if item and len(item[1]) in (2, 6) else line)
    return "\n".join(lines)


def is_in_list(lines: list[str]) -> bool:
    """Return whether the last line belongs to an item of a list."""
    for line in reversed(lines):
        if re.match(r" *(?:[-*]|\d+\.) ", line):
            return True
        if not line.startswith(" "):
            return False
    return False


def copy() -> None:
    """Copy pages and pictures to the source of the site."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path in [*pages(), *(ROOT / "docs").rglob("*")]:
        target = SOURCE / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = for_the_site(path.read_text(encoding="utf-8"), path)
            target.write_text(text, encoding="utf-8")
        elif path.suffix in ASSETS:
            shutil.copy(path, target)


# --- checks of the result -----------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := given.get(name))}
        for name in ("href", "src"):
            if (value := given.get(name)) and tag != "link":
                self.links.append(value)


def broken_links(folder: Path) -> list[str]:
    """Return the links of a site that have no target in it."""
    parsed = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")
    }
    broken = []
    for path, page in parsed.items():
        if path.name == "404.html":
            continue  # its links are relative to the address that was not found
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists():
                broken.append(f"{path.relative_to(folder)}: {link}")
            elif anchor and target in parsed and anchor not in parsed[target].ids:
                broken.append(f"{path.relative_to(folder)}: {link} (no such heading)")
    return broken


def foreign_resources(folder: Path) -> list[str]:
    """Return scripts, styles and pictures that a page would load from another host."""
    pattern = re.compile(r'<(?:script|img|link)\b[^>]*?(?:src|href)="(https?://[^"]+)"[^>]*>')
    return [
        f"{path.relative_to(folder)}: {found[1]}"
        for path in folder.rglob("*.html")
        for found in pattern.finditer(path.read_text(encoding="utf-8"))
        if not re.search(r'rel="(canonical|prev|next)"', found[0])
    ]


# --- the site in a browser ----------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def faults_in_browser(folder: Path, pictures: Path) -> list[str]:
    """Return findings of axe and the console, and overflows, of each page at three widths."""
    from tests.support.browser.chromium import (
        HEIGHTS,
        WIDTHS,
        Visitor,
        breaches,
        chromium,
        overflow,
    )

    handler = partial(Quiet, directory=str(folder.parent))
    found = []
    pictures.mkdir(parents=True, exist_ok=True)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        chromium() as browser,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for path in sorted(folder.rglob("index.html")):
            name = path.parent.relative_to(folder).as_posix()
            visitor = Visitor(browser)
            page = visitor.visit(f"http://127.0.0.1:{server.server_port}/{folder.name}/{name}/")
            page.wait_for_load_state("networkidle")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
                picture = pictures / f"{name.replace('/', '-')}-{width}.png"
                page.screenshot(path=picture, animations="disabled")
                found += [f"{name} at {width}: {each}" for each in overflow(page)]
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.wait_for_timeout(400)  # colours fade
                found += [f"{name}, {scheme}: {each}" for each in breaches(page)]
            found += [f"{name}: {each}" for each in visitor.close()]
        server.shutdown()
    return found


def main() -> int:
    """Build and check the site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", action="store_true", help="check all pages in Chromium too")
    options = parser.parse_args()
    copy()
    shutil.rmtree(SITE, ignore_errors=True)
    version = ".".join(logstore.__version__.split(".")[:2])
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [str(program), "build", "--strict", "--clean", "--config-file", "mkdocs.yml"],
        cwd=ROOT,
        env={**os.environ, "SITE_DIR": f"build/site/{version}", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(re.sub(r"\x1b\[[\d;]*m", "", done.stdout), end="")
    if done.returncode or "griffe: " in done.stdout:  # a docstring that cannot be parsed
        return 1
    folder = SITE / version
    for path in folder.rglob("*.html"):
        # Screen readers announce an empty header cell.
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"<th([^>]*)></th>", r"<td\1></td>", text), encoding="utf-8")
    entry = {"version": version, "title": logstore.__version__, "aliases": ["latest"]}
    (SITE / "versions.json").write_text(json.dumps([entry]) + "\n", encoding="utf-8")
    refresh = f'<meta http-equiv="refresh" content="0; url={version}/">'
    redirect = f'<!doctype html><html lang="en"><title>kafka-logstore</title>{refresh}</html>\n'
    (SITE / "index.html").write_text(redirect, encoding="utf-8")
    problems = broken_links(folder) + foreign_resources(folder)
    if options.browser:
        problems += faults_in_browser(folder, ROOT / "build" / "site-pictures")
    print("\n".join(problems))
    built = len(list(folder.rglob("index.html")))
    print(f"{built} pages from {len(pages())}, {len(problems)} problems")
    return 1 if problems or built < len(pages()) else 0


if __name__ == "__main__":
    sys.exit(main())
