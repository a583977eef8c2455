"""The verdict in words. Bounds are marked "at most", and "nothing to do" is not "clean"."""

import pytest

KIB = 1024
NOTHING = {"segments": 0, "bytes": 0, "reasons": []}
EXPIRED = {
    "segments": 1,
    "bytes": KIB,
    "reasons": [
        {"code": "retention.by_time", "values": {"limit_ms": 3_600_000}, "text": ""},
        {"code": "retention.empties", "values": {}, "text": ""},
    ],
}


def verdict(state, *, exact=False, now=0, rolled=0, records=None, retention=NOTHING):
    return {
        "state": state,
        "exact": exact,
        "frees_bytes": now if exact else None,
        "frees_records": records,
        "frees_bytes_if_rolled": rolled if exact else None,
        "frees_bytes_at_most": now,
        "frees_bytes_if_rolled_at_most": rolled,
        "retention": retention,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    (
        (
            verdict("due", now=3 * KIB, rolled=4 * KIB),
            "A cleaning pass now frees at most 3.0 KiB of 4.0 KiB; at most 4.0 KiB if the active"
            " segment were rolled first.",
        ),
        (
            verdict("due", exact=True, now=3 * KIB, rolled=3 * KIB, records=1),
            "A cleaning pass now frees 3.0 KiB of 4.0 KiB, 1 record.",
        ),
        (
            verdict("waiting", rolled=4 * KIB),
            "No cleaning pass is due. A forced pass frees 0 B of 4.0 KiB; at most 4.0 KiB if"
            " the active segment were rolled first.",
        ),
        (verdict("nothing_to_do"), "A cleaning pass would remove nothing."),
        (verdict("not_compacted"), "Not compacted. Retention has nothing to remove."),
        (
            verdict("not_compacted", now=KIB, retention=EXPIRED),
            "Not compacted. Retention would remove 1 segment, 1.0 KiB of 4.0 KiB"
            " (retention.ms=1h; the active segment is deleted too, which leaves the log empty).",
        ),
        (verdict("unknown", now=KIB), "The number of reclaimable bytes is unknown."),
        (
            verdict("damaged", now=KIB),
            "Cleaning passes stop at the damage. Without it, a pass frees at most 1.0 KiB of"
            " 4.0 KiB.",
        ),
    ),
)
def test_a_verdict_is_one_sentence(front, given, expected):
    assert front.call("verdict.js", "sentence", (given, 4 * KIB)) == [expected]


def test_a_summary_names_states_that_occur_and_what_is_due(front):
    states = dict.fromkeys(
        ("damaged", "uncleanable", "due", "waiting", "nothing_to_do", "not_compacted", "unknown"), 0
    )
    summary = {
        **states,
        "partitions": 17,
        "damaged": 2,
        "due": 5,
        "waiting": 10,
        "frees_bytes": None,
        "frees_bytes_at_most": 3 * KIB,
        "bytes": 4 * KIB,
        "retention_bytes": 0,
        "retention_bytes_of_due": 0,
    }
    exact = {**summary, "frees_bytes": 2 * KIB, "retention_bytes": KIB}
    both = {**exact, "retention_bytes_of_due": KIB}
    empty = {**summary, **states, "partitions": 1, "nothing_to_do": 1}
    assert front.call("verdict.js", "summarySentence", (summary,), (exact,), (both,), (empty,)) == [
        "17 partitions: 2 damaged, 5 due (free at most 3.0 KiB of 4.0 KiB), 10 waiting",
        "17 partitions: 2 damaged, 5 due (free 2.0 KiB of 4.0 KiB), 10 waiting;"
        " retention would remove 1.0 KiB",
        "17 partitions: 2 damaged, 5 due (free 2.0 KiB of 4.0 KiB), 10 waiting;"
        " retention would remove 1.0 KiB, 1.0 KiB of it in partitions that are due",
        "1 partition: 1 nothing to do",
    ]


def test_no_state_is_shown_as_good(front):
    """A log that was never cleaned must not carry a green badge."""
    kinds = front.run(
        """async (world) => {
            const { STATES } = await world.load("verdict.js");
            return Object.values(STATES).map(([, kind]) => kind);
        }"""
    )
    assert set(kinds) <= {"plain", "warn", "bad"}


def test_a_running_broker_is_cleaned_by_its_buttons(front):
    """The command line could not open its directory."""
    given = {
        "help_reasons": [
            {"code": code, "values": {"topic": "users", "partition_id": 0}, "text": ""}
            for code in ("help.clean", "help.force", "help.lower_min_lag")
        ]
    }
    running, copied = front.call(
        "verdict.js", "remedies", (given, {"read_only": False}), (given, {"read_only": True})
    )
    assert running == ["the button Clean below", "a shorter min.compaction.lag.ms"]
    assert copied == [
        "logstore clean users --partition 0",
        "logstore clean users --partition 0 --force",
        "a shorter min.compaction.lag.ms",
    ]


def test_commands_for_damage_say_what_they_do(front):
    lines = ("logstore check", "logstore salvage t-0 --out DIR", "logstore clean t --partition 0")
    assert front.call("verdict.js", "purpose", *((line,) for line in lines)) == [
        "Shows all damage, and changes nothing:",
        "Copies the intact records to DIR:",
        None,
    ]


def test_empty_partitions_are_one_sentence(front):
    many = {f"t{number}": 1 for number in range(6)}
    few = {"__consumer_offsets": 48, "__transaction_state": 50}
    assert front.call("list.js", "emptySentence", (few,), (many,)) == [
        "98 empty partitions with nothing to do: 48 in __consumer_offsets, 50 in"
        " __transaction_state.",
        "6 empty partitions with nothing to do: 1 in t0, 1 in t1, 1 in t2, 1 in t3, 1 in t4 and"
        " others in 1 topic.",
    ]
