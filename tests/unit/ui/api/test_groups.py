"""Consumer groups on the page, and the places of a key."""

import shutil

import pytest

from logstore import Acl, Authorizer, Broker, OffsetAndMetadata, TopicPartition
from tests.support.world.groups import ConsumerClient
from tests.support.world.page import Asked

E1 = TopicPartition("events", 1)


@pytest.fixture
def grouped(broker):
    """A group whose member reads, one without members, and one whose id is a path."""
    consumer = broker.consumer("events", group_id="readers", auto_offset_reset="earliest")
    while not consumer.poll():
        pass
    consumer.commit()
    for _ in range(3):
        broker.append("events", value=b"more", partition=1)
    admin = broker.admin()
    admin.alter_group_offsets("a/b c", {E1: OffsetAndMetadata(2, "why")})
    with Asked(broker) as page:
        yield page


def test_groups_are_listed_and_described(grouped):
    listed = {each["group_id"]: each for each in grouped.get("/api/groups")["groups"]}
    assert listed.keys() == {"readers", "a/b c"}
    assert listed["readers"]["group_state"] == "Stable"
    told = grouped.get("/api/groups/readers")
    (member,) = told["members"]
    assert member["topics"] == ["events"]
    assert {(each["topic"], each["partition"]) for each in member["assignment"]} == {
        ("events", 0),
        ("events", 1),
    }
    (_, offset) = sorted(told["offsets"], key=lambda each: each["partition"])
    assert (offset["offset"], offset["log_end_offset"], offset["lag"]) == (1, 4, 3)


def test_a_group_without_members_has_its_offsets(grouped):
    told = grouped.get("/api/groups/a/b c")
    assert (told["group_state"], told["members"]) == ("Empty", [])
    assert told["offsets"] == [
        {
            "topic": "events",
            "partition": 1,
            "offset": 2,
            "metadata": "why",
            "leader_epoch": -1,
            "log_end_offset": 4,
            "lag": 2,
        },
    ]


def test_no_group_is_not_found(grouped):
    refused = grouped.ask("GET", "/api/groups/nobody")
    assert (refused.status, refused.json["error"]["type"]) == (404, "GroupIdNotFoundError")


def test_groups_and_topics_are_described_as_permitted(grouped):
    authorizer = Authorizer()
    broker = grouped.context.broker
    with Asked(broker, authorizer, "User:ann") as page:
        assert page.get("/api/groups")["groups"] == []
        assert page.ask("GET", "/api/groups/readers").status == 403
        authorizer.add(Acl("User:ann", "describe", "group", "readers"))
        assert [each["group_id"] for each in page.get("/api/groups")["groups"]] == ["readers"]
        assert page.get("/api/groups/readers")["offsets"] == []
        # As over the wire, a member's subscription is the group's.
        assert page.get("/api/groups/readers")["members"][0]["topics"] == ["events"]
        authorizer.add(Acl("User:ann", "describe", "topic", "events"))
        assert len(page.get("/api/groups/readers")["offsets"]) == 2
        authorizer.add(Acl("User:ann", "describe", "cluster", "kafka-cluster"))
        assert len(page.get("/api/groups")["groups"]) == 2


def test_assignments_of_the_consumer_protocol_are_shown_as_permitted(broker):
    """Another principal may have resolved a pattern to topics that this one may not describe."""
    client = ConsumerClient(broker, "m", topics=(), regex=".*")
    client.join()
    broker.clock.advance(seconds=2)
    client.beat()
    authorizer = Authorizer()
    authorizer.add(Acl("User:ann", "describe", "group", "g"))
    authorizer.add(Acl("User:ann", "describe", "topic", "events"))
    with Asked(broker) as page:
        (member,) = page.get("/api/groups/g")["members"]
        assert {each["topic"] for each in member["assignment"]} > {"events"}
    with Asked(broker, authorizer, "User:ann") as page:
        (member,) = page.get("/api/groups/g")["members"]
        assert {each["topic"] for each in member["assignment"]} == {"events"}


def test_a_copied_directory_has_its_groups(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("events")
        broker.admin().alter_group_offsets("g", {TopicPartition("events", 0): OffsetAndMetadata(0)})
    with Broker(tmp_path, read_only=True) as broker, Asked(broker) as page:
        assert [each["group_id"] for each in page.get("/api/groups")["groups"]] == ["g"]
        assert page.get("/api/groups/g")["offsets"][0]["lag"] == 0


def test_the_lag_of_a_partition_that_is_not_in_the_directory_is_not_known(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("events")
        broker.admin().alter_group_offsets("g", {TopicPartition("events", 0): OffsetAndMetadata(0)})
    shutil.rmtree(tmp_path / "events-0")
    (tmp_path / "logstore-topics.json").unlink()
    with Broker(tmp_path, read_only=True) as broker, Asked(broker) as page:
        [offset] = page.get("/api/groups/g")["offsets"]
        assert (offset["log_end_offset"], offset["lag"]) == (None, None)


def test_the_places_of_a_key_are_the_command_s(page, broker):
    path = "/api/partitions/users/0/erasure"
    told = page.get(f"{path}?key=k1")
    assert told | broker.erasure("users", b"k1", 0).to_json() == told
    assert told["places"]
    assert page.get(f"{path}?key_base64=azE=") == told
    assert page.get(f"{path}?key=nobody")["places"] == []
    for query in ("", "?key=a&key_base64=azE=", "?key_base64=%21", "?key_base64=%C3%A9"):
        assert page.ask("GET", path + query).status == 400


def test_a_key_is_looked_for_by_whom_it_is_allowed(broker):
    authorizer = Authorizer([Acl("User:ann", "describe", "topic", "users")])
    with Asked(broker, authorizer, "User:ann") as page:
        path = "/api/partitions/users/0/erasure?key=k1"
        assert page.ask("GET", path).status == 403
        authorizer.add(Acl("User:ann", "read", "topic", "users"))
        assert page.ask("GET", path).status == 200


def test_the_fates_of_committed_offsets_have_their_keys_decoded(broker):
    broker.admin().alter_group_offsets("g", {E1: OffsetAndMetadata(2)})
    [tp] = {tp for tp in broker.partitions("__consumer_offsets") if broker.log(*tp).log_end_offset}
    with Asked(broker) as page:
        [fate] = page.get(f"/api/partitions/{tp.topic}/{tp.partition}/fates")["fates"]
        assert fate["decoded"]["key"] == {"group": "g", "topic": "events", "partition": 1}
