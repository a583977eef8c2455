"""Writes docs/CONFIG.md from the table of keys; `make docs` runs it, a test checks it."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.group_keys import GROUP_KEYS, GROUPS_MAX
from logstore.config.inert_keys import (
    INERT_BROKER_KEYS,
    INERT_TOPIC_KEYS,
    NAMES,
    NOT_OFFERED_TO_TOPICS,
    OLD_BROKER_NAMES,
    OLD_COMPACT,
    OLD_POLICY_KEY,
    PREFIXES,
    STORED_BROKER_KEYS,
    STORED_TOPIC_KEYS,
    UNKNOWN_KEY_CHARACTERS_MAX,
    UNKNOWN_KEYS_MAX,
    UNKNOWN_VALUE_CHARACTERS_MAX,
)
from logstore.config.keys import LATER_RELEASES, ConfigKey, Ranges, ReleaseChange, Synonym, render
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.types import INT64_MAX

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "CONFIG.md"
WIDTH = 100
KEY = re.compile(
    "|".join(
        rf"(?<![\w.]){re.escape(key)}(?![\w.]*\w)"
        for key in sorted({*STORED_TOPIC_KEYS, *STORED_BROKER_KEYS}, key=len, reverse=True)
        if "." in key
    )
)

INTRODUCTION = """\
# Configuration

Generated from the tables of `logstore/config` by `make docs`; do not edit. Names, types, ranges and
defaults are Kafka 3.9's; [changes in later releases](#later-releases) are listed below. The keys of
the consumer protocol (`group.consumer.*`) are Kafka 4.3's.

## Where a value comes from

The first source that defines a value takes precedence:

1. `--config KEY=VALUE`, for one command;
2. the topic's value, from `topic create --config` or `topic alter --set`, stored in
   `logstore-topics.json` in the first data directory;
3. the dynamic value of the broker, set while it runs by `Broker.alter_broker_configs`, by an admin
   client or over the wire, or by `broker alter` while it is stopped, stored in the same file;
4. the dynamic cluster-wide default (`cluster_wide=True`; over the wire the broker
   with an empty name, Kafka's `<default>`);
5. the broker's static value, from the `server.properties` file of `--config-file` or the properties
   passed to `Broker`: the first listed broker key of a topic key;
6. the default.

`topic describe` shows each effective value and its origin (`topic`, `dynamic broker`, `dynamic
default` or `broker` with the key, or `default`), and the layers below it. Dynamic broker settings
are the cleaner's, and the first broker key of each topic key. Settings for a group of brokers are
the same change for each broker of the group (`Cluster.alter_broker_configs` with their ids). A
change applies from the next use: new limits apply to the next append, the current segment keeps its
jitter.

Values are parsed as in Kafka: surrounding blanks are ignored, integers are decimal and fit into 32
or 64 bits, booleans are `true` or `false` in any case, lists are separated by commas, other words
must be spelled as shown. Times of a topic may also be `7d`, `12h`, `30s`, sizes `512KiB` or `1GiB`;
the same applies to dynamic broker settings. They are stored in Kafka's form. A value out of range
is refused. An unknown topic key is refused with the nearest valid one. An unknown broker key in a
file is ignored with a warning; in a program it is refused, unless it is a Kafka key without effect
here.

Some values are checked against each other, with their effective values:

- `max.compaction.lag.ms` must not be less than `min.compaction.lag.ms`, for values of the topic, of
  the broker, or of both;
- `log.cleaner.dedupe.buffer.size` must leave more than 1 MiB for each of `log.cleaner.threads`,
  if the cleaner is enabled and has threads;
- `log.dirs`, or `log.dir` without it, must name a directory if it is set.
"""

LATER = """
## Later releases

The ranges and defaults above are Kafka 3.9's, for directories of any release. Later releases, up to
4.4, differ in these keys; a topic that is valid here may be refused by such a broker:

| Key | Here, and in Kafka 3.9 | Since | Later releases |
|---|---|---|---|
"""

OLD_NAMES = """
## Old names

The proposal of log compaction (KAFKA-631) and old guides use other names. They are accepted with a
note; the current name takes precedence if both are given.

| Old | Current | Value |
|---|---|---|
"""

WITHOUT_EFFECT = """
## Keys without effect

Many keys of a broker's `server.properties` do not apply to this engine. The following keys are
listed once in a note and have no effect:
"""

INERT = """
Tools set the following keys on any topic, or dynamically on any broker. They are validated as in
Kafka, stored, and described where they are set. Only those for throttled replication have an
effect, in a cluster:
"""

UNKNOWN = f"""
## Unknown broker keys

Like Kafka, a running broker stores unknown keys given to AlterConfigs, IncrementalAlterConfigs,
`Broker.alter_broker_configs` or `broker alter`, and describes them as sensitive: their values are
not shown. Each layer holds at most {UNKNOWN_KEYS_MAX}, with names of up to
{UNKNOWN_KEY_CHARACTERS_MAX} and values of up to {UNKNOWN_VALUE_CHARACTERS_MAX} characters. Known
keys that cannot change while the broker runs are refused by name. Scenarios of `simulate` refuse
unknown keys.
"""

GROUPS = f"""
## Keys of groups

A group of the consumer protocol may override these broker keys. Admin clients set them with
resources of type GROUP, such as `kafka-configs --group`; the group need not exist. They are stored
in `logstore-topics.json`, in a cluster in the controller's `logstore-cluster.json`. A value must be
within the bounds `group.consumer.min.*` and `group.consumer.max.*` of the broker when it is set;
if the bounds are narrower after a restart, the nearest allowed value applies. At most
{GROUPS_MAX} groups have such values. Kafka's keys of share groups and streams groups are refused.
"""

NOT_OFFERED = """
## Refused topic keys
These topic keys of Kafka are refused, because they are not supported:

| Key | Why |
|---|---|
"""


def text() -> str:
    """Return the whole page."""
    meanings = {row.doc for row in TOPIC_KEYS.values()}
    return "".join(
        (
            INTRODUCTION,
            "\n## Topic keys\n",
            *(entry(row) for row in TOPIC_KEYS.values()),
            "\n## Broker keys that give topics their defaults\n\n",
            "| Broker key | Sets | Allowed |\n|---|---|---|\n",
            *defaults(),
            "\nA negative `log.retention.ms`, `.minutes` or `.hours` means -1.\n",
            "\n## Broker keys\n",
            *(entry(row) for row in BROKER_KEYS.values() if row.doc not in meanings),
            GROUPS,
            *(entry(row) for row in GROUP_KEYS.values()),
            LATER,
            *(later(change) for change in LATER_RELEASES),
            OLD_NAMES,
            f"| `{OLD_POLICY_KEY}` of a topic | `cleanup.policy` | the same |\n",
            *(
                f"| `{each.old}` | `{each.current}` | {each.reading} |\n"
                for each in OLD_BROKER_NAMES
            ),
            f"| policy `{OLD_COMPACT}` | policy `compact` | |\n",
            WITHOUT_EFFECT,
            *paragraph([*(f"{prefix}*" for prefix in PREFIXES), *NAMES]),
            INERT,
            *(entry(row) for row in (*INERT_TOPIC_KEYS.values(), *INERT_BROKER_KEYS.values())),
            UNKNOWN,
            NOT_OFFERED,
            *(f"| `{key}` | {why} |\n" for key, why in sorted(NOT_OFFERED_TO_TOPICS.items())),
        )
    )


def defaults() -> Iterator[str]:
    """Yield the table row of each broker key behind a topic key, by name."""
    behind = [(each, row.key) for row in TOPIC_KEYS.values() for each in row.synonyms]
    for synonym, key in sorted(behind):
        bounds = allowed(BROKER_KEYS[synonym.key])
        yield f"| `{synonym.key}` | `{key}`{unit_of(synonym)} | {bounds or 'any'} |\n"


def entry(row: ConfigKey) -> str:
    """Return the section of one key."""
    facts = [row.kind.value, f"default {shown(row.key, row.default)}", allowed(row)]
    if row.synonyms:
        names = "; ".join(f"`{each.key}`{unit_of(each)}" for each in row.synonyms)
        facts.append(f"broker: {names}")
    meaning = textwrap.fill(
        KEY.sub(r"`\g<0>`", row.doc), WIDTH, break_long_words=False, break_on_hyphens=False
    )
    return f"\n### `{row.key}`\n\n{meaning}\n\n{' · '.join(filter(None, facts))}\n"


def allowed(row: ConfigKey) -> str:
    """Return the limits of a key's values beyond its type, or empty if there are none."""
    if row.form is not None:
        return row.form.words
    return ", ".join(f"`{value}`" for value in row.values) or in_range(row.ranges)


def in_range(ranges: Ranges) -> str:
    """Return the intervals in words."""
    words = []
    for low, high in ranges:
        if low == high:
            words.append(f"{low}")
        elif high is None:
            words.append(f"at least {low}")
        else:
            words.append(f"at most {high}" if low is None else f"{low} to {high}")
    return " or ".join(words)


def unit_of(synonym: Synonym) -> str:
    """Return the unit of a broker key that has another one than its topic key."""
    return {60_000: ", in minutes", 3_600_000: ", in hours"}.get(synonym.factor, "")


def shown(key: str, value: object) -> str:
    """Return a default with its meaning in words."""
    plain = render(value)  # type: ignore[arg-type]
    return f"`{plain}`{in_words(key, value)}" if plain else "blank"


def in_words(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return " (no limit)" if isinstance(value, float) and value > INT64_MAX else ""
    if value == INT64_MAX:
        return " (no limit)"
    units = (
        ((24 * 3_600_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
        if key.endswith(".ms")
        else ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    )
    return next(
        (
            f" ({value // size} {name})"
            for size, name in units
            if value >= size and not value % size
        ),
        "",
    )


def later(change: ReleaseChange) -> str:
    """Return the rows of one change: the topic key and its broker keys."""
    row = TOPIC_KEYS.get(change.key) or BROKER_KEYS[change.key]
    keys = [change.key, *(each.key for each in row.synonyms)]
    if change.removed:
        here, there = "there", "gone"
    elif change.default is not None:
        here = f"default {shown(change.key, row.default)}"
        there = f"default {shown(change.key, change.default)}"
    else:
        assert change.ranges is not None
        here, there = in_range(row.ranges), in_range(change.ranges)
    return f"| {', '.join(f'`{key}`' for key in keys)} | {here} | {change.since} | {there} |\n"


def paragraph(names: Iterable[str]) -> Iterator[str]:
    """Yield lines with sorted names in them."""
    quoted = " ".join(f"`{name}`" for name in sorted(names))
    yield "\n"
    for line in textwrap.wrap(quoted, WIDTH, break_long_words=False, break_on_hyphens=False):
        yield f"{line}\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} written\n")
