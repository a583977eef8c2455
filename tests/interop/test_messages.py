"""Every version of every message against Kafka's classes.

Kafka reads random messages of this engine, converts them to JSON and encodes them again; it then
parses the JSON and encodes the result. All bytes and all JSON must be equal, and this engine
decodes Kafka's bytes. Every version is judged by at least one release.
"""

import base64
import json
import random

import pytest

from logstore.messages import decode, encode_bytes, schema, to_json, types
from logstore.messages.schema import definitions
from tests.support.interop.message_definitions import files
from tests.support.world.random_messages import random_message

pytestmark = pytest.mark.interop

MESSAGES = 12
"""Messages of each version."""

CHANGED_SINCE_KAFKA_3 = {
    ("ReadShareGroupStateSummaryResponse", 0),
    ("ShareGroupMetadataValue", 0),
}
"""Messages of share groups, which were unstable in 3.9.2; Kafka 4 changed the same version."""

NAMED_OTHERWISE_IN_KAFKA_3 = {
    "ConsumerGroupCurrentMemberAssignmentValue": {"assignmentEpochs"},
    "ConsumerGroupMetadataValue": {"metadataHash"},
    "ConsumerGroupTargetAssignmentMetadataValue": {"assignmentTimestamp"},
    "OffsetCommitValue": {"topicId"},
    "RemoteLogSegmentMetadataRecord": {"txnIndexEmpty"},
    "RemoteLogSegmentMetadataSnapshotRecord": {"txnIndexEmpty"},
    "TransactionLogValue": {
        "clientTransactionVersion",
        "nextProducerEpoch",
        "nextProducerId",
        "previousProducerId",
    },
    "TxnOffsetCommitRequest": {"generationId", "generationIdOrMemberEpoch"},
    "VoteRequest": {
        "candidateDirectoryId",
        "candidateEpoch",
        "candidateId",
        "replicaDirectoryId",
        "replicaEpoch",
        "replicaId",
    },
}
"""Fields that Kafka 4 added to a version as tagged ones, or renamed: the bytes are the same."""


def instances():
    """Yield name, version, message and bytes of random messages, the first one all defaults."""
    for name in definitions():
        rng = random.Random(name)
        for version in sorted(schema(name).versions):
            for number in range(MESSAGES):
                absent = 1.0 if number == 0 else 0.15
                message = random_message(rng, name, version, absent=absent)
                yield name, version, message, encode_bytes(message, version)


def ask(judge, scratch, rows):
    """Return Kafka's response to each row of name, version and bytes."""
    given, report = scratch / "given", scratch / "told"
    with given.open("w") as file:
        for name, version, data in rows:
            text = base64.b64encode(data).decode()
            file.write(json.dumps({"name": name, "version": version, "bytes": text}) + "\n")
    judge.ask("messages", scratch, "-", input=str(given), output=str(report))
    return [json.loads(line) for line in report.read_text().splitlines()]


def without(report, names):
    """Return JSON without the fields of some names, at any depth."""
    match report:
        case dict():
            return {key: without(each, names) for key, each in report.items() if key not in names}
        case list():
            return [without(each, names) for each in report]
    return report


def disagreement(row, answer, unnamed):
    """Return the difference of Kafka's response, or None."""
    name, version, message, data = row
    if "error" in answer:
        return answer["error"]
    if base64.b64decode(answer["bytes"]) != data or answer["left"]:
        return "bytes"
    ours = json.loads(json.dumps(to_json(message, version)))
    if without(answer["json"], unnamed) != without(ours, unnamed):
        return "json"
    if not unnamed and answer["again"] is not None and base64.b64decode(answer["again"]) != data:
        return "bytes written from json"
    again = decode(getattr(types, name), version, base64.b64decode(answer["bytes"]))
    return None if encode_bytes(again, version) == data else "bytes written again"


def test_kafka_reads_and_writes_the_same(kafka3, kafka4, scratch, row):
    rows = list(instances())
    judged = set()
    releases = (kafka3, CHANGED_SINCE_KAFKA_3, NAMED_OTHERWISE_IN_KAFKA_3), (kafka4, set(), {})
    for judge, changed, renamed in releases:
        answers = ask(judge, scratch, [(name, version, data) for name, version, _, data in rows])
        result = {}
        for each, answer in zip(rows, answers, strict=True):
            name, version, message, _ = each
            if not answer or (name, version) in changed:
                continue
            judged.add((name, version))
            if (differs := disagreement(each, answer, renamed.get(name, ()))) is not None:
                result.setdefault((name, version), (differs, message))
        row("messages of every version", judge, sum(map(bool, answers)))
        assert result == {}
    known = {(name, version) for name in definitions() for version in schema(name).versions}
    assert known - judged == set()


def test_the_tables_match_the_jars():
    for path, text in files().items():
        if path.suffix == ".txt":
            assert path.read_text() == text, path
