"""Random commands on random data directories: outputs, exit codes and written files are stored.

A directory is written to the disk once, and no command may change it or report a bug.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from logstore import Broker, LogStoreError
from logstore.cli.main import main
from logstore.runtime.clock import FixedWallClock
from tests.support.world.golden_dirs import tree
from tests.support.world.page import Asked
from tests.support.world.random_cleanings import DAY_MS, HEADER
from tests.support.world.random_directory import CONFIGS, TOPICS, Made, random_directory
from tests.support.world.transcripts import Transcript, drawn

FEW = 32
COMMANDS = 22
REQUESTS = 16
FORMATS = ("table", "table", "json", "json", "jsonl", "csv")
FLAG = (None,)
KEYS = ("k1", "k3", "k7", "k12", "k25", "never", "ключ", "")
KEYS_BASE64 = ("/wA=", "azE=", "a", "")
TIMES = ("latest", "earliest", "max-timestamp", "-1", "-3", "2024-01-03", "@1", "-2d", "x")
WHERE = ("earliest", "latest", 0, 3, 9, 40, -1, "@2024-01-02", "@-1d", "x")
CONFIG = "--config"
AS_RECOVERED = {"--as-recovered": FLAG}
PARTITION = {"--partition": ()}
KEY = {"--key": KEYS, "--key-base64": KEYS_BASE64}

OPTIONS: dict[str, dict[str, tuple[object, ...]]] = {
    "inspect": {
        **PARTITION,
        **AS_RECOVERED,
        CONFIG: (),
        "--deep": FLAG,
        "--exact": FLAG,
        "--all": FLAG,
    },
    "inspect --batches": {**PARTITION, **AS_RECOVERED, "--raw": FLAG},
    "inspect --records": {**PARTITION, **AS_RECOVERED, "--raw": FLAG, "--fate": FLAG},
    "inspect --fate": {**PARTITION, CONFIG: (), "--force": FLAG, "--roll": FLAG, **AS_RECOVERED},
    "inspect --summary": {
        "--sort": ("size", "ratio", "lag", "frees"),
        "--exact": FLAG,
        "--all": FLAG,
        "--deep": FLAG,
        CONFIG: (),
    },
    "explain": {
        **PARTITION,
        **AS_RECOVERED,
        CONFIG: (),
        "--quick": FLAG,
        "--exact": FLAG,
        "--all": FLAG,
    },
    "explain --key": {**PARTITION, CONFIG: (), "--quick": FLAG, "--exact": FLAG},
    "check": {},
    "stats": {**PARTITION, "--top": (0, 1, 3), CONFIG: (), **AS_RECOVERED},
    "dump": {
        "--deep-iteration": FLAG,
        "--print-data-log": FLAG,
        "--key-decoder-class": ("StringDecoder", "IntegerDecoder", "LongDecoder", "No"),
        "--value-decoder-class": ("StringDecoder", "IntegerDecoder"),
        "--verify-index-only": FLAG,
        "--index-sanity-check": FLAG,
        "--max-message-size": (10, 200),
        "--max-bytes": (0, 100, 1000),
        "--skip-record-metadata": FLAG,
    },
    "read": {
        **PARTITION,
        **AS_RECOVERED,
        "--from": WHERE,
        "--until": (0, 5, 20),
        "--max-records": (0, 1, 5),
        "--last": (0, 1, 4),
        "--isolation": ("read_uncommitted", "read_committed"),
        "--key": (*KEYS, "base64:/wA=", "base64:x"),
        "--latest-per-key": FLAG,
        "--raw": FLAG,
    },
    "erasure": {**PARTITION, CONFIG: ()},
    "diff": {"--all": FLAG, "--summary": FLAG, CONFIG: (), **AS_RECOVERED},
    "offsets": {**PARTITION, "--time": TIMES, **AS_RECOVERED},
    "clean --dry-run": {
        **PARTITION,
        CONFIG: (),
        "--force": FLAG,
        "--roll": FLAG,
        "--threads": (1, 2),
        "--accept-data-loss": FLAG,
    },
    "retain --dry-run": {**PARTITION, CONFIG: (), "--accept-data-loss": FLAG},
    "clean --out": {**PARTITION, CONFIG: (), "--force": FLAG, "--roll": FLAG},
    "salvage --out": {**PARTITION},
    "export --out": {
        **PARTITION,
        **AS_RECOVERED,
        CONFIG: (),
        "--key-format": ("bytes", "text", "json", "confluent"),
        "--value-format": ("bytes", "text", "json", "confluent"),
        "--roll": FLAG,
        "--no-fates": FLAG,
        "--raw": FLAG,
    },
    "simulate --from": {
        "--topic": (*TOPICS, "no"),
        "--print": FLAG,
        "--days": (0, 0.1, 0.5),
        "--samples": (3, 20),
        CONFIG: (),
    },
    "topic list": {},
    "topic describe": {},
    "broker describe": {},
}
"""The options of the commands, with values to draw from."""

DECODERS = ("offsets", "transaction-log", "cluster-metadata", "remote-log-metadata")
WEIGHTS = {"inspect": 3, "check": 2, "explain": 3, "erasure": 3, "diff": 2, "stats": 2, "read": 2}

PAGE = (
    "/api/about",
    "/api/partitions?sort={sort}&descending={bit}&count=3",
    "/api/partitions?empty=0&filter=s",
    "/api/partitions?topic={topic}&first={small}",
    "/api/cleaner",
    "/api/history",
    "/api/groups",
    "/api/groups/g0",
    "/api/clock",
    "/api/broker/configs",
    "/api/topics/{topic}/configs",
    "{tp}",
    "{tp}/verdict",
    "{tp}/segments?first={small}&count={count}",
    "{tp}/segment-map?buckets={count}",
    "{tp}/segment-map?first={small}&count={count}",
    "{tp}/explain?quick={bit}",
    "{tp}/explain?key={key}",
    "{tp}/tombstones",
    "{tp}/stats?top={small}",
    "{tp}/segments/{small}/batches?count={count}",
    "{tp}/batches/{small}/records?first={small}&count={count}",
    "{tp}/records?from_offset={small}&count={count}",
    "{tp}/records?key={key}",
    "{tp}/records?key_base64=/wA=",
    "{tp}/records?isolation=read_committed&until_offset=30",
    "{tp}/records?from_timestamp={time}&count={count}",
    "{tp}/records?until_timestamp={time}&count={count}",
    "{tp}/records?text=1&field_bytes={count}",
    "{tp}/records?pattern=[a-c]%2B&count={count}",
    "{tp}/records?header=" + HEADER + "&count={count}",
    "{tp}/records?header_text=o",
    "{tp}/fates?first={small}&count={count}&roll={bit}",
    "{tp}/erasure?key={key}&places={small}",
)
"""Addresses of the page that change nothing."""


def transcribe(seed: int) -> Transcript:
    """Return random commands on a directory, and their outcomes."""
    rng = Random(seed)
    made = random_directory(rng)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="random-directory-") as home:
        os.chdir(home)
        try:
            with standing_still():
                return _Commands(rng, made).run()
        finally:
            os.chdir(here)


@contextlib.contextmanager
def standing_still() -> Iterator[None]:
    """Measure no times, confirm goals with few seeds, and write neither reports nor Parquet."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("log", "split", "writer"):  # damaged files violate invariants
            patch.setattr(f"logstore.storage.log.{module}.VERIFY", False)
        patch.setattr(logging.getLogger("logstore"), "propagate", False)
        patch.setattr(logging.root.manager, "disable", logging.NOTSET)
        patch.setattr(FixedWallClock, "monotonic_ns", lambda _: 1)
        patch.setattr("logstore.simulate.search.HELD_OUT_SEEDS", 2)
        patch.setattr("logstore.simulate.files.can_write_parquet", lambda: False)
        patch.setattr("logstore.cli.commands.simulate._report", lambda *_, **__: None)
        yield


PARQUET_SIZE = re.compile(
    r"(out\.parquet: [\d,]+ records?), .*"
    r'|(out\.parquet", "records": \d+, "size_bytes": |out\.parquet,\d+,)\d+'
)
"""The size of a Parquet file depends on the version of pyarrow."""


class Outcomes:
    """The outcomes of commands in the current folder, as a transcript."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.home = str(Path.cwd())

    def call(self, *arguments: str) -> None:
        result = CliRunner(env={"LOGSTORE_DATA_DIR": None, "COLUMNS": None}).invoke(
            main, list(arguments)
        )
        self.transcript.note(f"$ {' '.join(arguments)}")
        self.note(result.stdout)
        self.note(f"{result.stderr}{result.exit_code}")
        assert "this is a bug" not in result.stderr, f"{arguments}: {result.stderr}"

    def note_written(self) -> None:
        """Note the files that a command has written, and remove them."""
        for path in sorted(Path().iterdir()):
            if not path.name.startswith("out"):
                continue
            if path.is_dir():
                for each in sorted(path.rglob("*")):
                    data = each.read_bytes() if each.is_file() else b"/"
                    data = data.replace(self.home.encode(), b"HOME")
                    if len(data) > 20_000:  # the series of a simulation
                        data = hashlib.sha256(data).digest()
                    self.transcript.note(str(each), data)
                shutil.rmtree(path)
                continue
            self.transcript.note(str(path), rows_of(path))
            path.unlink()

    def note(self, text: str) -> None:
        """Note an output, with one name for the directory, and rules of one length."""
        text = re.sub("─+", "─", text.replace(self.home, "HOME"))
        self.transcript.note(PARQUET_SIZE.sub(r"\1\2", text))


class _Commands(Outcomes):
    """Commands in the folder that has a directory, `data`, and its earlier copy, `before`."""

    def __init__(self, rng: Random, made: Made) -> None:
        super().__init__()
        self.rng, self.made = rng, made
        self.files = tree(made.fs)
        self.logs = sorted(each for each in self.files if each.endswith(".log"))
        self.now_ms = made.now_ms + rng.choice((0, 0, 3_600_000, 3 * DAY_MS, 40 * DAY_MS))
        self.folders = made.folders

    def run(self) -> Transcript:
        rng = self.rng
        write("data", self.files, self.folders, self.made.now_ms)
        write("before", self.made.before, [], self.made.now_ms)
        Path("server.properties").write_text(
            "log.dirs=data\nlog.cleanup.policy=compact\nlog.cleaner.min.cleanable.ratio=0.2\n"
        )
        names = [each for each in OPTIONS for _ in range(WEIGHTS.get(each, 1))]
        if rng.random() < 0.85:  # it takes as long as all else
            names.remove("simulate --from")
        for name in rng.sample(names, COMMANDS):
            self.call(*self.command(name))
            self.note_written()
        self.ask()
        assert self.unchanged(), "the directory has changed"
        return self.transcript

    def unchanged(self) -> bool:
        return {
            str(path.relative_to("data")): path.read_bytes()
            for path in Path("data").rglob("*")
            if path.is_file() and path.name != ".lock"
        } == {name: data for name, data in self.files.items() if name != ".lock"}

    # -- commands ----------------------------------------------------------------------------

    def command(self, name: str) -> list[str]:
        """Draw the arguments of a command."""
        rng = self.rng
        words = name.split()
        arguments: list[object] = [*words]
        match words[0]:
            case "salvage" | "clean" if words[1] == "--out":
                arguments.append("out")
            case "export":
                arguments.append(f"out.{rng.choice(('csv', 'jsonl', 'jsonl', 'parquet'))}")
            case "simulate":
                source = rng.choice(("data", "data", self.folder()))
                arguments += [source, "--jobs", 1]
                arguments += rng.choice((["--print"], ["--out", "out"]))
            case "explain" if len(words) > 1:
                arguments.append(rng.choice(KEYS))
            case "erasure":
                key = rng.choice(("--key", "--key", "--key-base64"))
                arguments += [key, rng.choice(KEY[key])]
            case "dump" if rng.random() < 0.4:
                arguments.append(f"--{rng.choice(DECODERS)}-decoder")
        target = self.target_of(words)
        arguments += target
        share = 0.25 if len(OPTIONS[name]) > 4 else 0.4
        for option, values in OPTIONS[name].items():
            if rng.random() >= share:
                continue
            if option == CONFIG:
                for key, value in drawn(rng, CONFIGS, 0.15).items():
                    arguments += [CONFIG, f"{key}={value}"]
            elif option == "--partition":
                numbers = [
                    each.rpartition("-")[2] for each in self.folders if [each[:-2]] == target
                ]
                if numbers or rng.random() < 0.1:
                    arguments += [option, rng.choice(numbers or [4])]
            else:
                value = rng.choice(values)
                arguments += [option] if value is None else [option, value]
        arguments += ["--now", self.now_ms, "--format", rng.choice(FORMATS)]
        if rng.random() < 0.06:
            arguments.append(rng.choice(("--full", "--escape-formulas", "--al", "--partition=-1")))
        if rng.random() < 0.15:
            arguments += ["--config-file", "server.properties"]
        else:
            arguments += ["--data-dir", "data"]
        return [str(each) for each in arguments]

    def target_of(self, words: list[str]) -> list[str]:
        """Draw the target of a command."""
        rng = self.rng
        match words[0]:
            case "diff":
                target = [f"before/{self.folder()}", f"data/{self.folder()}"]
                if rng.random() < 0.9:
                    target[1] = target[0].replace("before", "data")
                return target[::-1] if rng.random() < 0.2 else target
            case "dump":
                return [self.file() for _ in range(rng.choice((1, 1, 2)))]
            case "topic" if words[1] == "describe":
                return [self.topic()]
            case "topic" | "broker" | "simulate":
                return []
            case "check":
                return rng.choice(([], [], [f"data/{self.folder()}"], [self.file()]))
        return self.target(required=words[0] in ("read", "offsets", "erasure"))

    def topic(self) -> str:
        names = [each.rpartition("-")[0] for each in self.folders]
        return self.rng.choice(names) if names and self.rng.random() < 0.95 else "user"

    def folder(self) -> str:
        return self.rng.choice(self.folders or ["no"])

    def file(self) -> str:
        return f"data/{self.rng.choice(sorted(self.files) or ['no'])}"

    def target(self, *, required: bool) -> list[str]:
        """Draw a topic, a directory, a file, or none."""
        rng = self.rng
        if self.rng.random() < 0.3 and not required:
            return []
        choice = rng.random()
        if choice < 0.55:
            return [self.topic()]
        if choice < 0.85:
            return [f"data/{self.folder()}"]
        if choice < 0.93:
            return ["./data"]
        return [f"data/{rng.choice(self.logs)}" if self.logs else "no/"]

    # -- the page ----------------------------------------------------------------------------

    def ask(self) -> None:
        """Request addresses of a page that shows the directory."""
        rng = self.rng
        with contextlib.ExitStack() as stack:
            try:
                broker = stack.enter_context(
                    Broker(
                        "data",
                        read_only=True,
                        on_damage="pass_over",
                        clock=FixedWallClock(self.now_ms),
                    )
                )
            except LogStoreError as error:
                self.note(f"{type(error).__name__} {error}")
                return
            page = stack.enter_context(Asked(broker))
            page.context.partitions._run_in_background = lambda measure: measure()
            tps = broker.partitions() or [("no", 0)]
            for target in rng.sample(PAGE, REQUESTS):
                topic, partition = rng.choice(tps)
                named = target.format(
                    tp=f"/api/partitions/{topic}/{partition}",
                    topic=topic,
                    sort=rng.choice(("name", "bytes", "damage", "dirty_ratio", "x")),
                    bit=rng.randrange(2),
                    small=rng.choice((0, 0, 1, 3, 9)),
                    count=rng.choice((1, 2, 5)),
                    key=rng.choice(KEYS[:-2]),
                    time=self.made.now_ms - rng.randrange(3 * DAY_MS),
                )
                answer = page.ask("GET", named)
                self.note(f"{named} {answer.status} {answer.body.decode()}")


def write(home: str, files: dict[str, bytes], folders: list[str], now_ms: int) -> None:
    """Write files to the disk, all with the same time."""
    for folder in folders:
        Path(home, folder).mkdir(parents=True, exist_ok=True)
    Path(home).mkdir(exist_ok=True)
    for name, data in files.items():
        path = Path(home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (now_ms / 1000, now_ms / 1000))


def rows_of(path: Path) -> Any:
    """Return the content of an exported file, without its metadata."""
    if path.suffix != ".parquet":
        return path.read_text(encoding="utf-8")
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    return json.dumps([str(table.schema), table.to_pylist()], default=str)
