"""The page's modules without a browser: numbers, times, bytes, and requests to the server.

The page prints numbers and times as the command line does, so that readers can compare them.
Tests that need a browser are in `tests/browser`.
"""

from base64 import b64encode

import pytest

from logstore.cli.show.output import format_count
from logstore.reasons.formats import format_size, format_span, format_time
from logstore.types import INT64_MAX
from tests.support.browser.front import Front, ModuleError

DAY_MS = 86_400_000
SIZES = [
    *(0, 1, 1023, 1024, 1025, 1536, 2**20 - 1, 2**20, 2**30, 5 << 30),
    *(2**40 - 1, 2**40, 3 << 40, 7 << 50),
]
SPANS = [
    *(0, 1, 999, 1000, 1001, 59_999, 60_000, 90_000, 3_599_999, 3_600_000, 3_600_001),
    *(DAY_MS - 1, DAY_MS, DAY_MS + 1, 2 * DAY_MS, 604_799_999, 365 * DAY_MS),
]
TIMES_MS = [0, 1, 1_700_000_000_000, 1_767_225_600_001, 4_102_444_800_000]


# --- numbers and times ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    (
        ("formatBytes", SIZES, format_size),
        ("formatCount", SIZES[:-1], format_count),
        ("formatDuration", SPANS, format_span),
        ("formatTime", TIMES_MS, format_time),
    ),
)
def test_numbers_and_times_read_as_on_the_command_line(front, function, values, expected):
    shown = front.call("format.js", function, *((value,) for value in values))
    assert shown == [expected(value) for value in values]


@pytest.mark.parametrize(
    ("ms", "shown"),
    (
        (DAY_MS, "1d"),
        (DAY_MS - 1, "23h 59m"),
        (3_600_000, "1h"),
        (60_000, "1m"),
        (1_000, "1s"),
        (-90_000, "-1m 30s"),
        (INT64_MAX, "none"),
        (None, "–"),
    ),
)
def test_a_duration_has_its_two_largest_units(front, ms, shown):
    assert front.call("format.js", "formatDuration", (ms,)) == [shown]


@pytest.mark.parametrize(
    ("function", "values", "shown"),
    (
        ("formatBytes", [None, -2048], ["–", "-2.0 KiB"]),
        ("formatCount", [None, INT64_MAX], ["–", "none"]),
        (
            "formatRatio",
            [None, 0, 0.004, 0.01, 0.5, 1],
            ["–", "0%", "0.4%", "1%", "50%", "100%"],
        ),
        (
            "formatShort",
            [0, 9_999, 10_000, 12_345, 1_000_000, 3_400_000, 10**9, -20_000],
            ["0", "9,999", "10 k", "12.3 k", "1 M", "3.4 M", "1 G", "-20 k"],
        ),
        ("formatTime", [None, -1, 9e15], ["–", "–", "9,000,000,000,000,000"]),
    ),
)
def test_unknown_negative_unlimited_and_large_numbers_are_formatted(front, function, values, shown):
    assert front.call("format.js", function, *((value,) for value in values)) == shown


def test_plurals_follow_the_count(front):
    calls = [(1, "record"), (2000, "record"), (2, "batch", "batches")]
    shown = front.call("format.js", "plural", *calls)
    assert shown == ["1 record", "2,000 records", "2 batches"]


def test_local_time_has_its_offset_from_utc(node, tmp_path):
    """St. John's is not a whole number of hours from UTC; once in winter, once in summer."""
    with Front(node, tmp_path, timezone="America/St_Johns") as front:
        times_ms = [(1_768_478_400_000,), (1_784_116_800_000,)]
        assert front.call("format.js", "formatLocalTime", *times_ms) == [
            "2026-01-15 08:30:00.000-03:30",
            "2026-07-15 09:30:00.000-02:30",
        ]
        assert front.call("format.js", "isLocalOther", *times_ms) == [True, True]


def test_local_time_is_not_shown_if_it_is_utc(front):
    assert front.call("format.js", "isLocalOther", (0,), (None,)) == [False, False]


def test_an_unknown_lag_is_not_0(front):
    """The lag is unknown if the partition is not in the directory."""
    shown = front.call("format.js", "formatLag", (None,), (0,), (12345,))
    assert shown == ["unknown", "0", "12,345"]
    lags = ([0, 1], [None, 2], [None, None], [None, 0])
    assert front.call("format.js", "lagInAll", *((each,) for each in lags)) == [
        "lag 1 record in all",
        "lag 2 records in all, unknown for 1 partition",
        "lag unknown",
        "lag 0 records in all, unknown for 1 partition",
    ]


# --- bytes ------------------------------------------------------------------------------------

FIELD = """async (world, values) => {
    const { Field } = await world.load("bytes.js");
    const text = (node) =>
        node == null || node === false ? []
        : Array.isArray(node) ? node.flatMap(text)
        : typeof node !== "object" ? [String(node)]
        : node.props.text !== undefined ? [node.props.text]
        : text(node.props.children);
    return values.map((base64) => text(Field({ record: { key_base64: base64 }, name: "key" }))[0]);
}"""


def test_escaped_bytes_are_unambiguous(front):
    """Unescaping the text gives the same bytes back, with backslashes too."""
    values = [bytes([byte]) for byte in range(256)]
    values += [bytes(range(256)), b"\\x00", b"\x00", b"\\\\", b"a\\", b"\\\xff\\n"]
    shown = front.run(FIELD, [b64encode(value).decode() for value in values])
    assert all(text.isascii() and text.isprintable() for text in shown)
    assert [text.encode().decode("unicode_escape").encode("latin-1") for text in shown] == values
    assert shown[0x5C] == "\\\\"


def test_control_and_direction_characters_are_escaped(front):
    texts = ["plain é 漢", "\x00\x1b[31m\n\t", "\u202eevil\u2066", "\ufeffa\u200bb", "\x85\u061c"]
    assert front.call("bytes.js", "visible", *((text,) for text in texts)) == [
        texts[0],
        r"\x00\x1b[31m\n\t",
        r"\u202eevil\u2066",
        r"\ufeffa\u200bb",
        r"\x85\u061c",
    ]


# --- requests ---------------------------------------------------------------------------------


def test_paths_and_queries_escape_any_character(front):
    assert front.call("api.js", "path", ("partitions", "a/b ?#", 0)) == [
        "partitions/a%2Fb%20%3F%23/0"
    ]
    calls = [("records", {"key": "a&b", "from": 0, "none": None, "empty": ""}), ("records", {})]
    assert front.call("api.js", "withQuery", *calls) == ["records?key=a%26b&from=0", "records"]


@pytest.mark.parametrize(
    ("event", "topic", "partition", "expected"),
    (
        (None, "a", 0, True),
        ({"partitions": "all"}, "a", 0, True),
        ({"partitions": [{"topic": "a", "partition": 0}]}, "a", 0, True),
        ({"partitions": [{"topic": "a", "partition": 1}]}, "a", 0, False),
        ({"partitions": [{"topic": "a", "partition": 1}]}, "a", None, True),
        ({"partitions": [{"topic": "b", "partition": 0}]}, "a", None, False),
        ({"topic": "a", "partition": 0}, "a", 0, True),
        ({"topic": "a", "partition": 0}, "b", 0, False),
    ),
)
def test_an_event_concerns_the_partitions_that_it_names(front, event, topic, partition, expected):
    assert front.call("api.js", "concerns", (event, topic, partition)) == [expected]


def test_a_refusal_becomes_an_error_with_the_message_of_the_server(front):
    found = front.run(
        """async (world) => {
            const { postJson } = await world.load("api.js");
            const asked = postJson("topics", { name: "t" });
            const { url, options, answer } = world.requests[0];
            const error = { type: "TopicAlreadyExistsError", message: "t exists", field: "name" };
            answer({ error }, 409);
            const refused = await asked.catch((error) => error);
            const lost = world.requests.length;
            const again = postJson("topics").catch((error) => error);
            world.requests[lost].fail();
            const { status, type } = await again;
            return {
                sent: [url, options.method, options.headers["Content-Type"], options.body],
                refused: [refused.message, refused.status, refused.type, refused.field],
                lost: [status, type],
            };
        }"""
    )
    assert found == {
        "sent": ["api/topics", "POST", "application/json", '{"name":"t"}'],
        "refused": ["t exists", 409, "TopicAlreadyExistsError", "name"],
        "lost": [0, "ConnectionError"],
    }


# --- events -----------------------------------------------------------------------------------


def test_listeners_are_notified_when_a_lost_connection_is_back(front):
    """Events sent in between are lost, so answers have to be requested again."""
    told = front.run(
        """async (world) => {
            const { live } = await world.load("api.js", true);
            const told = [];
            live.on("reconnected", () => told.push("reconnected"));
            live.on("state", (state) => told.push(state));
            live.on("partitions", (data) => told.push(data));
            live.connect();
            const [source] = world.sources;
            source.onopen();
            source.send("partitions", { partitions: [] });
            source.readyState = 0;  // the browser tries again by itself
            source.onerror();
            source.onopen();
            source.onopen();
            return told;
        }"""
    )
    assert told == ["open", {"partitions": []}, "lost", "open", "reconnected", "open"]


def test_a_stream_that_opens_between_rendering_and_effects_is_shown_as_open(front):
    states = front.run(
        """async (world) => {
            const { live, useConnection } = await world.load("api.js", true);
            live.connect();
            const states = [];
            await world.render(() => {
                if (states.length === 0) queueMicrotask(() => world.sources[0].onopen());
                states.push(useConnection().state);
            });
            world.sources[0].onerror();
            await world.advance(0);
            return states;
        }"""
    )
    assert states == ["connecting", "open", "lost"]


def test_a_refused_stream_is_reopened_after_growing_delays(front):
    found = front.run(
        """async (world) => {
            const { live } = await world.load("api.js", true);
            const opened = [];
            let hasCome = 0;
            live.on("cleaned", () => hasCome++);
            live.connect();
            for (let count = 1; count <= 7; count++) {
                const source = world.sources.at(-1);
                source.readyState = 2;
                source.onerror();
                source.onerror();
                world.requests.at(-1).answer({ error: { message: "another token" } }, 401);
                await world.advance(0);
                const before = world.nowMs;
                while (world.sources.length === count) await world.advance(500);
                opened.push(world.nowMs - before);
            }
            const problem = live.problem.message;
            const last = world.sources.at(-1);
            last.onopen();
            last.send("cleaned", {});
            const after = [live.problem, live.state, hasCome];
            last.readyState = 2;
            last.onerror();
            const [before, count] = [world.nowMs, world.sources.length];
            while (world.sources.length === count) await world.advance(500);
            opened.push(world.nowMs - before);
            return { opened, problem, after };
        }"""
    )
    seconds = [1, 2, 4, 8, 16, 30, 30, 1]  # the last one after it was open
    assert found["opened"] == [1000 * each for each in seconds]
    assert (found["problem"], found["after"]) == ("another token", [None, "open", 1])


def test_requests_are_repeated_in_proportion_to_how_long_they_took(front):
    asked = front.run(
        """async (world) => {
            const { Pace } = await world.load("api.js");
            const asked = [];
            const pace = new Pace(() => asked.push(world.nowMs));
            pace.ask();
            pace.ask();
            await world.advance(1000);  // both are one, soon after the first
            pace.took(5);
            pace.ask();
            await world.advance(10_000);  // a second after the last answer
            pace.took(50);
            pace.ask();
            await world.advance(20_000);  // a hundred times its duration
            pace.took(10_000);
            pace.ask();
            await world.advance(20_000);  // but ten seconds at most
            pace.ask();
            pace.stop();
            await world.advance(60_000);
            return asked;
        }"""
    )
    assert asked == [200, 2000, 16_000, 41_000]


def test_a_hidden_page_requests_nothing_until_it_is_visible(front):
    asked = front.run(
        """async (world) => {
            const { Pace } = await world.load("api.js");
            const asked = [];
            const pace = new Pace(() => asked.push(world.nowMs));
            document.hidden = true;
            pace.ask();
            await world.advance(60_000);
            const [{ name, call }] = world.listeners;
            document.hidden = false;
            call();
            await world.advance(60_000);
            return [name, asked];
        }"""
    )
    assert asked == ["visibilitychange", [60_200]]


ANSWER = """async (world, [options, events]) => {
    const { live, useAnswer } = await world.load("api.js", true);
    live.connect();
    const states = [];
    const given = { on: ["changed"], ...options };
    const end = await world.render(() => states.push(useAnswer("topics", given)));
    const last = () => {
        const { answer, error, isLoading, isStale } = states.at(-1);
        return [answer, error?.message ?? null, isLoading, isStale];
    };
    const seen = [];
    for (const event of events) {
        const request = world.requests.at(-1);
        if (event === "answer") request.answer(world.requests.length);
        else if (event === "refuse") request.answer({ error: { message: "no" } }, 500);
        else if (event === "change") world.sources[0].send("changed", {});
        else if (event === "lose") world.sources[0].onerror();
        else if (event === "return") world.sources[0].onopen();
        else if (event === "end") end();
        else await world.advance(event);
        await world.advance(0);
        seen.push([event, world.requests.length, ...last()]);
    }
    return seen;
}"""


def test_an_event_during_a_request_causes_another_request(front):
    """The answer may have been computed before the event."""
    seen = front.run(ANSWER, [{}, ["change", 200, "answer", 9_999, 1, "answer", 60_000]])
    assert [(event, requests, answer) for event, requests, answer, *_ in seen] == [
        ("change", 1, None),
        (200, 1, None),  # due while the first request is on its way
        ("answer", 1, 1),
        (9_999, 1, 1),  # a hundred times as long as the server took, ten seconds at most
        (1, 2, 1),
        ("answer", 2, 2),
        (60_000, 2, 2),  # once: nothing came meanwhile
    ]


def test_the_last_answer_is_kept_while_the_next_is_requested(front):
    seen = front.run(
        ANSWER, [{}, ["answer", "change", 60_000, "refuse", "change", 60_000, "answer"]]
    )
    assert [each[1:] for each in seen] == [
        [1, 1, None, False, False],
        [1, 1, None, False, False],
        [2, 1, None, True, False],
        [2, 1, "no", False, False],
        [2, 1, "no", False, False],
        [3, 1, "no", True, False],
        [3, 3, None, False, False],
    ]


def test_a_costly_answer_is_marked_stale_and_not_requested_again(front):
    seen = front.run(ANSWER, [{"isCostly": True}, ["answer", "change", 60_000]])
    assert [each[1:] for each in seen] == [
        [1, 1, None, False, False],
        [1, 1, None, False, True],
        [1, 1, None, False, True],
    ]


def test_a_restored_connection_requests_again_at_once(front):
    seen = front.run(
        ANSWER, [{}, ["return", "answer", "lose", "return", "answer", "end", "change", 60_000]]
    )
    assert [requests for _, requests, *_ in seen] == [1, 1, 1, 2, 2, 2, 2, 2]


def test_events_for_other_topics_are_ignored(front):
    requests = front.run(
        """async (world) => {
            const { live, useAnswer } = await world.load("api.js", true);
            live.connect();
            const isMeant = (data) => data.topic === "mine";
            await world.render(() => useAnswer("topics", { on: ["changed"], isMeant }));
            world.requests[0].answer(1);
            const counts = [];
            for (const topic of ["other", "mine"]) {
                world.sources[0].send("changed", { topic });
                await world.advance(60_000);
                counts.push(world.requests.length);
            }
            return counts;
        }"""
    )
    assert requests == [1, 2]


def test_a_stream_that_never_opens_is_requested_again(front):
    counts = front.run(
        """async (world) => {
            const { live } = await world.load("api.js", true);
            live.connect();
            const counts = [];
            for (const ms of [9_000, 3_000]) {
                await world.advance(ms);
                counts.push([world.sources.length, live.state]);
            }
            world.sources[1].onopen();
            await world.advance(60_000);
            counts.push([world.sources.length, live.state]);
            return counts;
        }"""
    )
    assert counts == [[1, "connecting"], [2, "lost"], [2, "open"]]


# --- tombstones -------------------------------------------------------------------------------


def test_tombstones_are_counted_by_what_they_wait_for(front):
    facts = front.run(
        """async (world, tombstones) => {
            const { Tombstones } = await world.load("records.js");
            let shown;
            const given = { topic: "t", partition: 0 };
            await world.render(() => { shown = Tombstones(given); });
            const answered = [shown].flat().find((each) => each.props.of);
            const counts = answered.props.children({ tombstones, is_compacted: true });
            const rendered = [counts.type(counts.props)].flat();
            return rendered.find((each) => each?.props?.facts).props.facts;
        }""",
        {"records": 60, "unstamped": 10, "expired": 20, "unreached": 5, "reasons": []},
    )
    assert [fact[:2] for fact in facts if fact] == [
        ["Tombstones", "60"],
        ["Without a horizon", "10"],
        ["Before their horizon", "30"],
        ["Past their horizon", "20"],
        ["Not reached", "5"],
    ]


# --- the harness ------------------------------------------------------------------------------


def test_an_error_in_a_module_is_raised_with_its_stack(front):
    with pytest.raises(ModuleError, match=r"is not a function[\s\S]*at "):
        front.call("format.js", "formatNothing", (1,))
    assert front.call("format.js", "formatBytes", (1,)) == ["1 B"], "and the process goes on"
