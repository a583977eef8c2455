"""Requests at their bounds: status of each, and the whole answer if it is refused.

To accept a change, delete `refusals.txt`, run the test, and review its new contents.
"""

import json
from pathlib import Path

import pytest

STORED = Path(__file__).with_name("refusals.txt")

USERS = "/api/partitions/users/0"
GET = (
    "/api/history?partition=0",
    "/api/history?topic=users&partition=1",
    "/api/history?topic=user",
    "/api/partitions/users/1",
    "/api/partitions/users/x",
    "/api/partitions/users/-1",
    "/api/partitions?sort=siz",
    "/api/partitions?descending=yes",
    "/api/partitions?count=0",
    "/api/partitions?count=1000000",
    "/api/partitions?first=-1",
    "/api/partitions?count=1&count=2",
    "/api/partitions?counts=1",
    f"{USERS}?x=1",
    f"{USERS}/segments?count=0",
    f"{USERS}/segment-map?buckets=0",
    f"{USERS}/segment-map?buckets=100000",
    f"{USERS}/stats?top=-1",
    f"{USERS}/stats?top=1000000",
    f"{USERS}/segments/1/batches",
    f"{USERS}/segments/x/batches",
    f"{USERS}/batches/99/records",
    f"{USERS}/records?count=0",
    f"{USERS}/records?from_offset=-1",
    f"{USERS}/records?from_offset=1.5",
    f"{USERS}/records?isolation=committed",
    f"{USERS}/records?key=a&key_base64=YQ==",
    f"{USERS}/records?key_base64=a",
    f"{USERS}/records?pattern=(",
    f"{USERS}/records?text=",
    f"{USERS}/records?header_text=x",
    f"{USERS}/records?field_bytes=-1",
    f"{USERS}/fates?roll=2",
    f"{USERS}/explain?quick=maybe",
    f"{USERS}/erasure",
    f"{USERS}/erasure?key=a&key_base64=YQ==",
    f"{USERS}/erasure?key=a&places=-1",
    "/api/topics/user/configs",
    "/api/groups/nobody",
)
CONFIRM = {"confirm": True}
POST = (
    ("/api/clock", {}),
    ("/api/clock", {"by_ms": 1, "to_ms": 2}),
    ("/api/clock", {"by_ms": -1}),
    ("/api/clock", {"by_ms": 1 << 63}),
    ("/api/clock", {"by_ms": "1"}),
    ("/api/clock", {"to_ms": 0}),
    ("/api/clock", {"next_event": False}),
    ("/api/clock", {"next_event": 1}),
    ("/api/topics", {}),
    ("/api/topics", {"name": "users"}),
    ("/api/topics", {"name": "users", "dry_run": True}),
    ("/api/topics", {"name": "a b", "dry_run": True}),
    ("/api/topics", {"name": "t", "partitions": 0}),
    ("/api/topics", {"name": "t", "partitions": 10**9}),
    ("/api/topics", {"name": "t", "configs": []}),
    ("/api/topics", {"name": "t", "configs": {"retention.m": "1h"}}),
    ("/api/topics", {"name": "t", "configs": {"retention.ms": "1 hour"}}),
    ("/api/topics", {"name": "t", "configs": {"retention.ms": None}}),
    ("/api/topics", {"name": "t", "configs": {"retention.ms": {}}}),
    ("/api/topics", {"name": "t", "configs": {"cleanup.policy": ["compact", 1]}}),
    ("/api/topics", {"name": "t", "configs": {"cleanup.policy": "a\nb"}}),
    ("/api/topics", {"name": "t", "replicas": 3}),
    ("/api/topics/users/configs", {"set": {}}),
    ("/api/topics/users/configs", {"unset": {"a": 1}}),
    ("/api/topics/users/configs", {"unset": [1]}),
    ("/api/topics/users/configs", {"unset": ["retention.m"]}),
    ("/api/topics/users/configs", {"set": {f"k{n}": 1 for n in range(1001)}}),
    ("/api/topics/users/configs", {"unset": [f"k{n}" for n in range(1001)]}),
    ("/api/topics/users/configs", {"set": {"segment.ms": 1}, "unset": ["segment.ms"]}),
    ("/api/broker/configs", {"set": {"log.cleaner.thread": 1}}),
    ("/api/broker/configs", {"set": {"log.dirs": "/x"}}),
    ("/api/broker/configs", {"cluster_wide": 1}),
    ("/api/preview", {}),
    ("/api/preview", {"partition": 0}),
    ("/api/preview", {"topic": "users", "partition": 4}),
    ("/api/preview", {"topic": "users", "set": {"retention.m": 1}}),
    ("/api/preview", {"topic": "users", "cluster_wide": True}),
    (f"{USERS}/roll", {"confirm": "yes"}),
    (f"{USERS}/clean", {"force": 1}),
    (f"{USERS}/delete-records", {}),
    (f"{USERS}/delete-records", {"before_offset": 99}),
    (f"{USERS}/delete-records", {"before_offset": -2}),
    (f"{USERS}/retain", {"dry-run": True}),
    (f"{USERS}/retry", {"x": 1}),
)


def test_requests_are_answered_so(page):
    lines = []
    for request in (*((each, None) for each in GET), *POST):
        target, body = request
        answer = page.ask("GET", target) if body is None else page.post(target, body)
        method = "GET" if body is None else f"POST {json.dumps(body)[:100]}"
        found = "" if answer.status == 200 else json.dumps(answer.json, ensure_ascii=False)
        lines.append(f"{method} {target}\n  {answer.status} {found}".rstrip())
    text = "".join(f"{line}\n" for line in lines)
    if not STORED.exists():
        STORED.write_text(text, encoding="utf-8")
        pytest.fail(f"{STORED} was missing: review the new file")
    assert text.splitlines() == STORED.read_text(encoding="utf-8").splitlines()
