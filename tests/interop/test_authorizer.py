"""Kafka's StandardAuthorizer makes the same decisions for random ACLs, requests and filters.

A case has a few ACLs over names that are prefixes of each other, so that literal, prefixed and
wildcard patterns, allowing and denying ones, apply to the same resource.
"""

import json
import random
from dataclasses import asdict

import pytest

from logstore.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from logstore.security.authorizer import Authorizer

pytestmark = pytest.mark.interop

CASES = 4000
NAMES = ("a", "ab", "abc", "abd", "b", "*", "*a", "h", "hard", "hardcode", "é")
PRINCIPALS = ("User:ann", "User:bob", "User:*", "Group:ann", "User:a:b", "User:ANONYMOUS")
HOSTS = ("127.0.0.1", "10.0.0.7", "*")
TYPES = [each for each in ResourceType if each > ResourceType.ANY]
OPERATIONS = [
    each for each in AclOperation if AclOperation.ANY < each < AclOperation.TWO_PHASE_COMMIT
]


def some_acl(rng, types, operations):
    kind = rng.choice(types)
    return Acl(
        rng.choice(PRINCIPALS),
        rng.choice(operations),
        kind,
        "kafka-cluster" if kind is ResourceType.CLUSTER else rng.choice(NAMES),
        rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        rng.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY)),
        rng.choice(HOSTS),
    )


def some_filter(rng, types, operations):
    def maybe(choices, absent):
        return absent if rng.random() < 0.5 else rng.choice(choices)

    return AclFilter(
        maybe(types, ResourceType.ANY),
        maybe((*NAMES, "kafka-cluster"), None),
        rng.choice([each for each in PatternType if each is not PatternType.UNKNOWN]),
        maybe(PRINCIPALS, None),
        maybe(HOSTS, None),
        maybe(operations, AclOperation.ANY),
        maybe((AclPermission.ALLOW, AclPermission.DENY), AclPermission.ANY),
    )


def case(seed):
    """Return an authorizer and the requests to it."""
    rng = random.Random(seed)
    types = rng.sample(TYPES, rng.choice((1, 1, 2, len(TYPES))))
    operations = rng.sample(OPERATIONS, rng.choice((1, 3, len(OPERATIONS))))
    authorizer = Authorizer(
        [some_acl(rng, types, operations) for _ in range(rng.choice((0, 1, 2, 4, 8, 30)))],
        super_users=rng.choice(((), (), ("User:bob", "Group:ann"))),
        allow_everyone_if_no_acl_found=rng.random() < 0.3,
    )
    # No principal is User:*, for which Kafka 4 cannot decide.
    whom = (PRINCIPALS[0], *(each for each in PRINCIPALS if each != "User:*"))
    asked = [
        (
            rng.choice(whom),
            rng.choice(HOSTS[:2]),
            rng.choice((*operations, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)),
            rng.choice(types),
            rng.choice((*NAMES, "abcdef", "kafka-cluster")),
        )
        for _ in range(20)
    ]
    by_type = [
        row[:4]
        for row in asked[:8]
        if row[2] is not AclOperation.ALL  # which is refused there
    ]
    return authorizer, asked, by_type, [some_filter(rng, types, operations) for _ in range(6)]


def plain(values):
    return {name: getattr(each, "name", each) for name, each in values.items()}


def case_json(authorizer, asked, by_type, filters):
    names = ("principal", "host", "operation", "resource_type", "resource_name")
    return {
        "acls": [plain(asdict(acl)) for acl in authorizer.acls()],
        "super_users": ";".join(sorted(authorizer.super_users)),
        "allow_everyone": str(authorizer.allow_everyone_if_no_acl_found).lower(),
        "requests": [plain(dict(zip(names, row, strict=True))) for row in asked],
        "by_type": [plain(dict(zip(names[:4], row, strict=True))) for row in by_type],
        "filters": [plain(asdict(each)) for each in filters],
    }


def our_answer(authorizer, asked, by_type, filters):
    return {
        "requests": [authorizer.authorize(*row).allowed for row in asked],
        "by_type": [authorizer.authorize_by_resource_type(*row).allowed for row in by_type],
        "filters": [
            sorted("|".join(plain(asdict(acl)).values()) for acl in authorizer.acls(each))
            for each in filters
        ],
    }


def test_kafka_decides_the_same(judge, scratch, row):
    cases = [case(seed) for seed in range(CASES)]
    given, answers = scratch / "given", scratch / "answers"
    given.write_text("".join(json.dumps(case_json(*each)) + "\n" for each in cases))
    judge.ask("authorize", scratch, "-", input=str(given), output=str(answers))
    different, decisions = [], 0
    for seed, (each, line) in enumerate(zip(cases, answers.read_text().splitlines(), strict=True)):
        kafkas, ours = json.loads(line), our_answer(*each)
        decisions += sum(map(len, ours.values()))
        different += [
            (seed, case_json(*each)["acls"], kind, asked, theirs)
            for kind, questions in zip(ours, each[1:], strict=True)
            for asked, mine, theirs in zip(questions, ours[kind], kafkas[kind], strict=True)
            if mine != theirs
        ]
    row("authorization by ACLs", judge, decisions)
    assert different == []
    allowed = [one for each in cases for one in our_answer(*each)["requests"]]
    assert 0.1 < sum(allowed) / len(allowed) < 0.9
