"""Rules of the authorizer, one by one; `tests/interop/test_authorizer.py` asks Kafka about all."""

import dataclasses
import json

import pytest

from logstore.errors import InvalidConfigurationError, RequestError
from logstore.security.acls import Acl, AclFilter, AclOperation, PatternType, ResourceType
from logstore.security.authorizer import Authorizer
from tests.support.world.messages import exactly

ANN, HERE = "User:ann", "127.0.0.1"


def acl(operation="read", name="orders", pattern="literal", permission="allow", **more):
    return Acl(
        **{"principal": ANN, "operation": operation, "resource_type": "topic"}
        | {"resource_name": name, "pattern_type": pattern, "permission": permission}
        | more
    )


def decided(acls, operation="read", name="orders", principal=ANN, host=HERE, **settings):
    authorizer = Authorizer(acls, **settings)
    return authorizer.authorize(principal, host, operation, "topic", name)


@pytest.mark.parametrize(
    ("given", "asked", "allowed", "rule"),
    (
        ([], {}, False, "no_acl"),
        ([], {"allow_everyone_if_no_acl_found": True}, True, "no_acl"),
        ([], {"super_users": [ANN]}, True, "super_user"),
        ([acl(permission="deny")], {"super_users": [ANN]}, True, "super_user"),
        ([acl()], {}, True, "acl"),
        ([acl()], {"operation": "write"}, False, "default"),
        ([acl()], {"name": "orders2"}, False, "no_acl"),
        ([acl()], {"name": "orders2", "allow_everyone_if_no_acl_found": True}, True, "no_acl"),
        ([acl()], {"principal": "User:bob"}, False, "default"),
        ([acl()], {"principal": "Group:ann"}, False, "default"),
        # an ACL for another principal ends the access of everyone
        (
            [acl()],
            {"principal": "User:b", "allow_everyone_if_no_acl_found": True},
            False,
            "default",
        ),
        ([acl(principal="User:*")], {"principal": "User:bob"}, True, "acl"),
        ([acl(principal="User:*")], {"principal": "Group:bob"}, True, "acl"),
        ([acl(host=HERE)], {}, True, "acl"),
        ([acl(host="10.0.0.7")], {}, False, "default"),
        ([acl(name="ord", pattern="prefixed")], {}, True, "acl"),
        ([acl(name="orders", pattern="prefixed")], {}, True, "acl"),
        ([acl(name="orders-", pattern="prefixed")], {}, False, "no_acl"),
        ([acl(name="*")], {}, True, "acl"),
        ([acl(name="*", pattern="prefixed")], {}, False, "no_acl"),
        # to deny wins, whatever the patterns and the order
        ([acl(), acl(permission="deny")], {}, False, "acl"),
        ([acl(), acl(name="*", permission="deny")], {}, False, "acl"),
        ([acl(), acl(name="o", pattern="prefixed", permission="deny")], {}, False, "acl"),
        ([acl(), acl(permission="deny", principal="User:*")], {}, False, "acl"),
        ([acl(), acl(permission="deny", principal="User:bob")], {}, True, "acl"),
        ([acl(), acl(permission="deny", host="10.0.0.7")], {}, True, "acl"),
        ([acl(), acl("write", permission="deny")], {}, True, "acl"),
        ([acl(), acl("all", permission="deny")], {}, False, "acl"),
    ),
)
def test_decision_and_its_rule(given, asked, allowed, rule):
    found = decided(given, **asked)
    assert (found.allowed, found.rule) == (allowed, rule)
    assert (found.acl is not None) == (rule == "acl")


@pytest.mark.parametrize(
    ("has", "implied"),
    (
        ("read", {"read", "describe"}),
        ("write", {"write", "describe"}),
        ("delete", {"delete", "describe"}),
        ("alter", {"alter", "describe"}),
        ("describe", {"describe"}),
        ("create", {"create"}),
        ("alter_configs", {"alter_configs", "describe_configs"}),
        ("describe_configs", {"describe_configs"}),
        ("idempotent_write", {"idempotent_write"}),
        ("all", {each.name.lower() for each in AclOperation if each > AclOperation.ANY}),
    ),
)
def test_implied_operations_are_permitted(has, implied):
    every = [each.name.lower() for each in AclOperation if each > AclOperation.ANY]
    assert {each for each in every if decided([acl(has)], each).allowed} == implied
    # to deny implies nothing
    everything = acl("all")
    denied = {
        each for each in every if not decided([everything, acl(has, permission="deny")], each)[0]
    }
    assert denied == ({has} if has != "all" else set(every))


def test_the_deciding_gate_is_reported():
    denying = acl(name="o", pattern="prefixed", permission="deny")
    assert decided([acl(), denying]).acl == denying


def test_the_wildcard_does_not_match_names_that_start_with_an_asterisk():
    assert not decided([acl(name="*")], name="*a").allowed
    assert decided([acl(name="*")], name="*").allowed


@pytest.mark.parametrize(
    ("given", "allowed"),
    (
        ([acl("write")], True),
        ([acl("write", name="*")], True),
        ([acl("write", name="o", pattern="prefixed")], True),
        ([acl("all")], True),
        ([acl("describe")], False),
        ([acl("write", principal="User:bob")], False),
        ([acl("write", resource_type="group")], False),
        ([acl("write"), acl("write", name="*", permission="deny")], False),
        ([acl("write"), acl("write", permission="deny")], False),
        ([acl("write"), acl("write", name="ord", pattern="prefixed", permission="deny")], False),
        ([acl("write"), acl("write", name="orders-", pattern="prefixed", permission="deny")], True),
        # a prefix that is denied is all that the same prefix allows, or a longer one
        (
            [
                acl("write", name="a-", pattern="prefixed"),
                acl("write", name="a-", pattern="prefixed", permission="deny"),
            ],
            False,
        ),
        (
            [
                acl("write", name="a-b", pattern="prefixed"),
                acl("write", name="a-", pattern="prefixed", permission="deny"),
            ],
            False,
        ),
        (
            [
                acl("write", name="a-", pattern="prefixed"),
                acl("write", name="a-b", pattern="prefixed", permission="deny"),
            ],
            True,
        ),
        ([acl("write"), acl("write", pattern="prefixed", permission="deny")], False),
        ([acl("write", name="*"), acl("write", permission="deny")], True),
        # the literal alone is denied, others with the prefix are not
        ([acl("write", pattern="prefixed"), acl("write", permission="deny")], True),
    ),
)
def test_by_the_type_of_a_resource(given, allowed):
    authorizer = Authorizer(given)
    asked = ANN, HERE, AclOperation.WRITE, ResourceType.TOPIC
    assert authorizer.authorize_by_resource_type(*asked).allowed is allowed
    assert Authorizer(given, super_users=[ANN]).authorize_by_resource_type(*asked).allowed


def test_a_describe_that_is_implied_does_not_count_by_type():
    asked = ANN, HERE, AclOperation.DESCRIBE, ResourceType.TOPIC
    assert not Authorizer([acl("read")]).authorize_by_resource_type(*asked).allowed


def test_filters():
    one, two = acl(), acl(name="ord", pattern="prefixed", principal="User:bob")
    every = acl("write", name="*", host=HERE, permission="deny")
    authorizer = Authorizer([one, two, every])

    def found(**wanted):
        return set(authorizer.acls(AclFilter(**wanted)))

    assert found() == {one, two, every}
    assert found(resource_name="orders") == {one}
    assert found(resource_name="orders", pattern_type="match") == {one, two, every}
    assert found(resource_name="orders", pattern_type="literal") == {one}
    assert found(pattern_type="prefixed") == {two}
    assert found(resource_name="ord", pattern_type="prefixed") == {two}
    assert found(resource_name="orders", pattern_type="prefixed") == set()
    assert found(principal="User:bob") == {two}
    assert found(host=HERE) == found(operation="write") == found(permission="deny") == {every}
    assert found(resource_type="group") == set()


def test_changes_are_in_force_at_once():
    authorizer = Authorizer()
    authorizer.add(acl(), acl("write"))
    authorizer.add(acl())
    assert authorizer.authorize(ANN, HERE, "read", "topic", "orders").allowed
    assert authorizer.remove(AclFilter(operation="read")) == [acl()]
    assert not authorizer.authorize(ANN, HERE, "read", "topic", "orders").allowed
    assert authorizer.acls() == [acl("write")]


@pytest.mark.parametrize(
    ("changed", "says"),
    (
        ({"operation": "any"}, "operation=ANY"),
        ({"operation": 99}, "operation=UNKNOWN"),
        ({"operation": "fly"}, "'fly' is not one of ALL, READ"),
        ({"pattern_type": "match"}, "pattern_type=MATCH"),
        ({"permission": "any"}, "permission=ANY"),
        ({"resource_type": 0}, "resource_type=UNKNOWN"),
        ({"principal": "ann"}, "has no type"),
        ({"resource_name": ""}, "the TOPIC resource name is empty"),
        ({"resource_type": "cluster"}, "the name of a CLUSTER resource must be kafka-cluster"),
    ),
)
def test_an_acl_that_kafka_does_not_take(changed, says):
    with pytest.raises(RequestError, match=says):
        dataclasses.replace(acl(), **changed)


def test_a_filter_that_kafka_does_not_take():
    with pytest.raises(RequestError, match="operation=UNKNOWN"):
        AclFilter(operation=99)


def test_words_may_be_kafkas_numbers():
    assert acl(3, resource_type=2, pattern=4) == acl(
        AclOperation.READ, pattern=PatternType.PREFIXED
    )


def test_json_there_and_back():
    given = Authorizer(
        [acl(), acl("all", name="é", pattern="prefixed", permission="deny", host=HERE)],
        super_users=["User:admin"],
        allow_everyone_if_no_acl_found=True,
    )
    again = Authorizer.from_json(given.to_json())
    assert again.acls() == given.acls()
    assert again.super_users == given.super_users
    assert again.allow_everyone_if_no_acl_found is True
    assert Authorizer.from_json("{}").acls() == []


@pytest.mark.parametrize(
    ("text", "says"),
    (
        (
            "{",
            (
                "the ACLs are not valid JSON: Expecting property name enclosed in double "
                "quotes: line 1 column 2 (char 1)"
            ),
        ),
        ("[]", "the ACLs: expected an object, got []"),
        (
            '{"users": []}',
            (
                "the ACLs: unknown 'users'; known: ['acls', "
                "'allow_everyone_if_no_acl_found', 'super_users']"
            ),
        ),
        ('{"acls": {}}', "acls and super_users must be lists"),
        ('{"acls": [7]}', "ACL 0: expected an object, got 7"),
        (
            '{"acls": [{"principal": "User:a"}]}',
            (
                "ACL 0: Acl.__init__() missing 2 required positional arguments: 'operation' "
                "and 'resource_type'"
            ),
        ),
        (
            '{"acls": [{"principal": "User:a", "operation": 3}]}',
            "ACL 0: expected strings, got {'principal': 'User:a', 'operation': 3}",
        ),
        (
            '{"acls": [{"who": "User:a"}]}',
            (
                "ACL 0: unknown 'who'; known: ['host', 'operation', 'pattern_type', "
                "'permission', 'principal', 'resource_name', 'resource_type']"
            ),
        ),
        (
            '{"acls": [{"principal": "a", "operation": "read", "resource_type": "cluster"}]}',
            "ACL 0: principal 'a' has no type: expected TYPE:NAME, such as User:ann",
        ),
        (
            '{"super_users": [1]}',
            ("allow_everyone_if_no_acl_found must be a boolean, and super_users strings"),
        ),
        (
            '{"super_users": ["admin"]}',
            "super user 'admin' has no type: expected TYPE:NAME, such as User:ann",
        ),
        (
            '{"allow_everyone_if_no_acl_found": 1}',
            ("allow_everyone_if_no_acl_found must be a boolean, and super_users strings"),
        ),
    ),
)
def test_json_that_is_wrong_is_refused(text, says):
    with pytest.raises(InvalidConfigurationError, match=exactly(says)):
        Authorizer.from_json(text)


def test_one_text_is_not_a_list_of_super_users():
    with pytest.raises(
        InvalidConfigurationError, match=exactly("super_users must be a list, not 'User:ann'")
    ):
        Authorizer(super_users=ANN)


KNOWN = [
    "host",
    "operation",
    "pattern_type",
    "permission",
    "principal",
    "resource_name",
    "resource_type",
]


@pytest.mark.parametrize(
    ("text", "says"),
    (
        ("[]", "the ACLs: expected an object, got []"),
        (
            '{"users": 1, "acl": 2}',
            "the ACLs: unknown 'acl';"
            " known: ['acls', 'allow_everyone_if_no_acl_found', 'super_users']",
        ),
        ('{"acls": {}}', "acls and super_users must be lists"),
        ('{"super_users": "User:a"}', "acls and super_users must be lists"),
        (
            '{"super_users": [5]}',
            "allow_everyone_if_no_acl_found must be a boolean, and super_users strings",
        ),
        (
            '{"allow_everyone_if_no_acl_found": 1}',
            "allow_everyone_if_no_acl_found must be a boolean, and super_users strings",
        ),
        (
            '{"super_users": ["ann"]}',
            "super user 'ann' has no type: expected TYPE:NAME, such as User:ann",
        ),
        ('{"acls": [5]}', "ACL 0: expected an object, got 5"),
        ('{"acls": [{"name": "x"}]}', f"ACL 0: unknown 'name'; known: {KNOWN}"),
        ('{"acls": [{"host": 5}]}', "ACL 0: expected strings, got {'host': 5}"),
    ),
)
def test_json_that_is_refused_is_named_whole(text, says):
    with pytest.raises(InvalidConfigurationError) as raised:
        Authorizer.from_json(text)
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("fields", "says"),
    (
        ({"principal": "ann"}, "principal 'ann' has no type: expected TYPE:NAME, such as User:ann"),
        ({"name": ""}, "the TOPIC resource name is empty"),
        (
            {"resource_type": "cluster", "name": "x"},
            "the name of a CLUSTER resource must be kafka-cluster, not x",
        ),
    ),
)
def test_an_acl_that_is_refused_is_named_whole(fields, says):
    with pytest.raises(RequestError) as raised:
        acl(**fields)
    assert str(raised.value) == says


def test_json_is_written_whole_and_read_again():
    one = acl(name="é", host="h")
    it = Authorizer([one], super_users=["User:b", "User:a"], allow_everyone_if_no_acl_found=True)
    text = it.to_json()
    assert json.loads(text) == {
        "super_users": ["User:a", "User:b"],
        "allow_everyone_if_no_acl_found": True,
        "acls": [
            {
                "principal": ANN,
                "operation": "READ",
                "resource_type": "TOPIC",
                "resource_name": "é",
                "pattern_type": "LITERAL",
                "permission": "ALLOW",
                "host": "h",
            }
        ],
    }
    assert text.startswith('{\n  "super_users": [\n')
    assert text.endswith("]\n}\n")
    again = Authorizer.from_json(text)
    assert again.to_json() == text
    assert again.acls() == it.acls()
    assert Authorizer.from_json("{}").to_json() == Authorizer().to_json()
