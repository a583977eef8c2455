"""Groups over the wire: who joins, waits, leaves, commits and asks, in old and new versions."""

import pytest

from logstore import Broker, VirtualClock
from logstore.coordinator.groups.consumer_protocol import Subscription, encode_subscription
from logstore.errors import KAFKA_CODES
from logstore.messages import to_json
from logstore.messages.types import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from logstore.runtime import MemoryFileSystem
from tests.support.world.wire import Client, name_of, versions

UNKNOWN_ID = "Q2fr5vs4Rk2Zrb3y9bJ0NA"
CONFIG = {"offsets.topic.num.partitions": 1, "group.min.session.timeout.ms": 50}


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), broker_config=CONFIG) as broker:
        broker.create_topic("t", 2)
        yield broker


def join(member_id="", metadata=b"mine", **fields):
    options = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000} | fields
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    return JoinGroupRequest(
        group_id="g",
        protocol_type="consumer",
        protocols=[protocol],
        member_id=member_id,
        **options,
    )


def sync(joined, assignments=(), **fields):
    given = [
        SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=share)
        for member, share in assignments
    ]
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=given,
        **fields,
    )


def member(client, version=9, **fields):
    """Return the answer of a join that a new member gets, id and all."""
    first = client.ask(join(**fields), version)
    if name_of(first.error_code) != "MEMBER_ID_REQUIRED":
        return first
    return client.ask(join(first.member_id, **fields), version)


def stable(client, **fields):
    """Return the only member of a stable group."""
    joined = member(client, **fields)
    client.ask(sync(joined, [(joined.member_id, b"all")]), 3)
    return joined


# -- the coordinator -------------------------------------------------------------------------


@versions("FindCoordinator", 1, 3)
def test_the_coordinator_is_here(listener, client, version):
    if version >= 4:
        asked = FindCoordinatorRequest(coordinator_keys=["g", "h"])
        found = client.ask(asked, version).coordinators
        assert [each.key for each in found] == ["g", "h"]
    else:
        found = [client.ask(FindCoordinatorRequest(key="g"), version)]
    for each in found:
        assert (each.error_code, each.node_id, each.host) == (0, 0, "127.0.0.1")
        assert each.port == listener.port


def test_the_offsets_topic_is_there_once_its_coordinator_is_requested(broker, client):
    client.ask(FindCoordinatorRequest(key="x", key_type=1), 1)
    assert "__consumer_offsets" not in {topic.name for topic in broker.topics()}
    client.ask(FindCoordinatorRequest(key="g"), 1)
    assert "__consumer_offsets" in {topic.name for topic in broker.topics()}


def test_an_unknown_kind_of_coordinator(client):
    answer = client.ask(FindCoordinatorRequest(key="g", key_type=7), 3)
    assert (name_of(answer.error_code), answer.node_id, answer.port) == ("INVALID_REQUEST", -1, -1)


# -- members ---------------------------------------------------------------------------------


@versions("JoinGroup", 1, 4, 6, 7)
def test_a_member_joins_alone(client, version):
    first = client.ask(join(), version)
    if version >= 4:
        assert name_of(first.error_code) == "MEMBER_ID_REQUIRED"
        first = client.ask(join(first.member_id), version)
    assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
    assert first.leader == first.member_id
    assert first.member_id.startswith("test-")
    assert [(each.member_id, bytes(each.metadata)) for each in first.members] == [
        (first.member_id, b"mine")
    ]


@versions("SyncGroup", 1, 3)
def test_a_member_gets_its_assignment(client, version):
    joined = member(client)
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    answer = client.ask(sync(joined, [(joined.member_id, b"all")], **names), version)
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"all")


def test_sync_group_version_5_contains_the_protocol(client):
    joined = member(client)
    answer = client.ask(sync(joined), 5)
    assert name_of(answer.error_code) == "INCONSISTENT_GROUP_PROTOCOL"


def test_members_wait_for_each_other(listener, client):
    first = stable(client)
    with Client(listener, "second") as other:
        asked = client.ask(
            HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id), 3
        )
        assert asked.error_code == 0
        second_id = other.ask(join(), 9).member_id
        waiting = join(second_id)
        other.socket.sendall(other.frame(waiting, 9))
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id)
        client.until(lambda: client.ask(beat, 3).error_code == KAFKA_CODES["REBALANCE_IN_PROGRESS"])
        again = client.ask(join(first.member_id), 9)
        second = other.read(waiting, 9)[1]
        assert again.generation_id == second.generation_id == 2
        leader, follower = (again, second) if again.members else (second, again)
        assert {each.member_id for each in leader.members} == {first.member_id, second_id}
        assert not follower.members
        # the follower's sync is answered when the leader has brought the assignments
        speakers = {first.member_id: client, second_id: other}
        speaker, leading = speakers[follower.member_id], speakers[leader.member_id]
        waiting = sync(follower)
        speaker.socket.sendall(speaker.frame(waiting, 3))
        shares = [(first.member_id, b"one"), (second_id, b"two")]
        answer = leading.ask(sync(leader, shares), 3)
        told = {
            leader.member_id: bytes(answer.assignment),
            follower.member_id: bytes(speaker.read(waiting, 3)[1].assignment),
        }
        assert told == dict(shares)


def test_a_client_that_disconnects_while_waiting_does_not_affect_others(listener, client):
    stable(client)
    with Client(listener) as other:
        second_id = other.ask(join(), 9).member_id
        other.socket.sendall(other.frame(join(second_id), 9))
    assert client.ask(ListGroupsRequest(), 4).error_code == 0


def test_a_silent_member_is_out_in_real_time_on_a_virtual_clock(broker, client):
    stable(client, session_timeout_ms=50)
    client.until(lambda: broker.groups.describe("g").state == "Empty")


def test_members_with_version_0_wait_for_each_other_without_a_rebalance_timeout(listener, client):
    """Their session timeout is used instead."""
    first = client.ask(join(), 0)
    client.ask(sync(first, [(first.member_id, b"all")]), 0)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id)
    with Client(listener, "second") as other:
        waiting = join()
        other.socket.sendall(other.frame(waiting, 0))
        client.until(lambda: client.ask(beat, 0).error_code == KAFKA_CODES["REBALANCE_IN_PROGRESS"])
        again = client.ask(join(first.member_id), 0)
        second = other.read(waiting, 0)[1]
    assert (again.error_code, again.member_id) == (0, first.member_id)
    assert again.generation_id == second.generation_id == 2
    leader = again if again.members else second
    assert {each.member_id for each in leader.members} == {first.member_id, second.member_id}


@pytest.mark.parametrize("version", (0, 9))
def test_a_rebalance_ends_by_the_clock_without_the_members_that_are_late(listener, client, version):
    options = {"session_timeout_ms": 100 if version == 0 else 30_000, "rebalance_timeout_ms": 100}
    for _ in range(2):
        first = stable(client, **options)
        with Client(listener, "second") as other:
            second = member(other, version, **options)  # answered once the first is given up
            assert second.generation_id > first.generation_id
            assert [each.member_id for each in second.members] == [second.member_id]
            generation_id = second.generation_id
            beat = HeartbeatRequest(
                group_id="g", generation_id=generation_id, member_id=first.member_id
            )
            assert name_of(client.ask(beat, 3).error_code) == "UNKNOWN_MEMBER_ID"
            leaving = [LeaveGroupRequest.MemberIdentity(member_id=second.member_id)]
            other.ask(LeaveGroupRequest(group_id="g", members=leaving), 5)


def test_a_virtual_clock_jump_removes_no_member(broker, client):
    joined = stable(client)
    broker.clock.advance(days=3)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert client.ask(beat, 4).error_code == 0


def test_a_static_member_comes_back_without_a_rebalance(client):
    first = stable(client, group_instance_id="one")
    again = client.ask(join(group_instance_id="one"), 9)
    assert (again.error_code, again.generation_id) == (0, 1)
    assert again.skip_assignment
    assert again.member_id != first.member_id
    beat = HeartbeatRequest(
        group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="one"
    )
    assert name_of(client.ask(beat, 3).error_code) == "FENCED_INSTANCE_ID"


@versions("Heartbeat")
def test_a_heartbeat_of_an_unknown_member(client, version):
    answer = client.ask(HeartbeatRequest(group_id="g", member_id="x"), version)
    assert name_of(answer.error_code) == "UNKNOWN_MEMBER_ID"


@versions("LeaveGroup", 2, 3)
def test_a_member_leaves(broker, client, version):
    joined = stable(client)
    identity = LeaveGroupRequest.MemberIdentity
    if version < 3:
        asked = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    else:
        members = [identity(member_id=joined.member_id), identity(member_id="x")]
        asked = LeaveGroupRequest(group_id="g", members=members)
    answer = client.ask(asked, version)
    assert answer.error_code == 0
    if version >= 3:
        assert [name_of(each.error_code) for each in answer.members] == [
            "NONE",
            "UNKNOWN_MEMBER_ID",
        ]
    assert broker.groups.describe("g").state == "Empty"
    if version < 3:
        answer = client.ask(asked, version)
        assert name_of(answer.error_code) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize(
    ("fields", "error"),
    (
        ({"session_timeout_ms": 1}, "INVALID_SESSION_TIMEOUT"),
        ({"member_id": "x"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "x", "group_instance_id": "one"}, "UNKNOWN_MEMBER_ID"),
    ),
)
@pytest.mark.parametrize("version", (5, 9))
def test_a_join_that_is_refused(client, fields, error, version):
    answer = client.ask(join(**fields), version)
    assert (name_of(answer.error_code), answer.generation_id) == (error, -1)


# -- offsets ---------------------------------------------------------------------------------


def commit(*rows, **fields):
    topics = {}
    for topic, partition, offset, metadata in rows:
        topics.setdefault(topic, []).append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    given = [of_topic(name=name, partitions=each) for name, each in topics.items()]
    return OffsetCommitRequest(group_id="g", topics=given, **fields)


def by_id(broker, request):
    """Name the topics of a request by id, as version 10 does; unknown topics get a random id."""
    groups = getattr(request, "groups", None)
    for topic in request.topics if groups is None else groups[0].topics or ():
        known = topic.name in {each.name for each in broker.topics()}
        topic.topic_id = broker.topic(topic.name).id if known else UNKNOWN_ID
    return request


def named(broker, answer):
    """Name the topics in a response of version 10."""
    names = {each.id: each.name for each in broker.topics()}
    for topic in answer.topics:
        topic.name = names.get(topic.topic_id, "no")
    return answer


def errors_of(answer):
    return {
        (topic.name, each.partition_index): name_of(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch(version, topics=("t",), indexes=(0, 1), **fields):
    if version < 8:
        of_topic = OffsetFetchRequest.OffsetFetchRequestTopic
        given = topics and [of_topic(name=t, partition_indexes=list(indexes)) for t in topics]
        return OffsetFetchRequest(group_id="g", topics=given, **fields)
    of_topic = OffsetFetchRequest.OffsetFetchRequestTopics
    given = topics and [of_topic(name=t, partition_indexes=list(indexes)) for t in topics]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=given)
    return OffsetFetchRequest(groups=[group], **fields)


def fetched(answer, version):
    """Return the result of an OffsetFetch, and its error."""
    if version >= 8:
        (answer,) = answer.groups
    told = {
        (topic.name, each.partition_index): (
            each.committed_offset,
            each.metadata,
            name_of(each.error_code),
        )
        for topic in answer.topics
        for each in topic.partitions
    }
    return told, name_of(answer.error_code)


@versions("OffsetCommit", 5, 7)
def test_offsets_are_committed(broker, client, version):
    asked = commit(("t", 0, 5, "méta"), ("t", 1, 6, None), ("t", 2, 7, ""), ("no", 0, 1, ""))
    answer = client.ask(by_id(broker, asked), version)
    assert errors_of(named(broker, answer) if version >= 10 else answer) == {
        ("t", 0): "NONE",
        ("t", 1): "NONE",
        ("t", 2): "UNKNOWN_TOPIC_OR_PARTITION",
        ("no", 0): "UNKNOWN_TOPIC_ID" if version >= 10 else "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert [each.offset for each in broker.groups.committed("g").values()] == [5, 6]


@versions("OffsetFetch", 2, 5, 7, 8)
def test_offsets_are_reported(broker, client, version):
    client.ask(commit(("t", 0, 5, "méta")), 9)

    def ask(request):
        answer = client.ask(by_id(broker, request) if version >= 8 else request, version)
        if version >= 10:
            named(broker, answer.groups[0])
        return fetched(answer, version)

    told, error = ask(fetch(version))
    assert error == "NONE"
    assert told == {("t", 0): (5, "méta", "NONE"), ("t", 1): (-1, "", "NONE")}
    if version >= 2:
        every, _ = ask(fetch(version, topics=None))
        assert every == {("t", 0): (5, "méta", "NONE")}


def test_offsets_of_unknown_topic_ids(broker, client):
    client.ask(commit(("t", 0, 5, "")), 9)
    asked = by_id(broker, fetch(10, ("t", "no"), indexes=(0,)))
    told, error = fetched(client.ask(asked, 10), 10)
    assert error == "NONE"
    assert told[("", 0)] == (-1, "", "UNKNOWN_TOPIC_ID")
    (group,) = client.ask(asked, 10).groups
    assert {each.topic_id for each in group.topics} == {broker.topic("t").id, UNKNOWN_ID}


def test_a_topic_created_again_has_no_offsets_under_either_id(broker, client):
    client.ask(commit(("t", 0, 5, "")), 9)
    old = by_id(broker, fetch(10, indexes=(0,)))
    broker.delete_topic("t")
    broker.create_topic("t", 2)
    told, _ = fetched(client.ask(old, 10), 10)
    assert told == {("", 0): (-1, "", "UNKNOWN_TOPIC_ID")}
    told, _ = fetched(client.ask(by_id(broker, fetch(10, indexes=(0,))), 10), 10)
    assert set(told.values()) == {(-1, "", "NONE")}
    commits = by_id(broker, commit(("t", 0, 1, "")))
    commits.topics[0].topic_id = old.groups[0].topics[0].topic_id
    (topic,) = client.ask(commits, 10).topics
    assert name_of(topic.partitions[0].error_code) == "UNKNOWN_TOPIC_ID"
    assert topic.topic_id == commits.topics[0].topic_id


def test_members_may_fetch_offsets_of_a_classic_group_with_any_epoch(client):
    client.ask(commit(("t", 0, 5, "")), 9)
    asked = fetch(9)
    asked.groups[0].member_id, asked.groups[0].member_epoch = "nobody", 7
    told, error = fetched(client.ask(asked, 9), 9)
    assert (told["t", 0], error) == ((5, "", "NONE"), "NONE")


@versions("OffsetCommit", 8, 9)
def test_a_commit_of_a_generation_to_an_unknown_group(broker, client, version):
    asked = by_id(broker, commit(("t", 0, 5, ""), generation_id_or_member_epoch=3, member_id="m"))
    error = "GROUP_ID_NOT_FOUND" if version >= 9 else "ILLEGAL_GENERATION"
    assert set(errors_of(client.ask(asked, version)).values()) == {error}


def test_a_commit_in_the_name_of_a_member(client):
    joined = stable(client)
    asked = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    assert set(errors_of(client.ask(commit(("t", 0, 5, ""), **asked), 9)).values()) == {"NONE"}
    asked["generation_id_or_member_epoch"] = 7
    answer = client.ask(commit(("t", 0, 6, ""), **asked), 9)
    assert set(errors_of(answer).values()) == {"ILLEGAL_GENERATION"}
    assert set(errors_of(client.ask(commit(("t", 0, 6, "")), 9)).values()) == {"UNKNOWN_MEMBER_ID"}


def test_offsets_are_deleted(broker, client):
    client.ask(commit(("t", 0, 5, "")), 9)
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    asked = OffsetDeleteRequest(
        group_id="g", topics=[topic(name="t", partitions=[partition(partition_index=0)])]
    )
    assert errors_of(client.ask(asked, 0)) == {("t", 0): "NONE"}
    assert broker.groups.committed("g") == {}
    asked.group_id = "none"
    answer = client.ask(asked, 0)
    assert (name_of(answer.error_code), answer.topics) == ("GROUP_ID_NOT_FOUND", [])


def test_unknown_topic_ids_do_not_read_all_topics_each(broker, client, monkeypatch):
    reads = []
    topics = broker.manager.catalog.topics
    monkeypatch.setattr(
        type(broker.manager.catalog), "topics", lambda _: reads.append(1) or topics()
    )
    commit_to(client, UNKNOWN_ID)
    reads.clear()
    for _ in range(3):
        assert commit_to(client, UNKNOWN_ID) == "UNKNOWN_TOPIC_ID"
    assert not reads
    topic_id = broker.create_topic("new").id
    assert commit_to(client, topic_id) == "NONE"
    broker.delete_topic("new")
    assert commit_to(client, topic_id) == "UNKNOWN_TOPIC_ID"


def commit_to(client, topic_id):
    """Commit an offset to a topic by id; return the error."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
    answer = client.ask(OffsetCommitRequest(group_id="ids", topics=[topic]), 10)
    return name_of(answer.topics[0].partitions[0].error_code)


# -- administration --------------------------------------------------------------------------


@versions("DescribeGroups", 3, 4, 5)
def test_groups_are_described(client, version):
    joined = stable(client)
    asked = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)
    group, none = client.ask(asked, version).groups
    assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
    assert [
        (each.member_id, each.client_id, each.client_host, bytes(each.member_assignment))
        for each in group.members
    ] == [(joined.member_id, "test", "/127.0.0.1", b"all")]
    error, message = (
        ("GROUP_ID_NOT_FOUND", "Group none not found.") if version >= 6 else ("NONE", None)
    )
    assert (name_of(none.error_code), none.error_message) == (error, message)
    assert (none.group_state, none.members) == ("Dead", [])
    if version >= 3:
        assert group.authorized_operations > 0


def consumer_heartbeat(member_id, **fields):
    options = {"subscribed_topic_names": ["t"], "topic_partitions": []} | fields
    return ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, rebalance_timeout_ms=1000, **options
    )


def set_assignment_interval(client, interval_ms):
    request = IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="consumer.assignment.interval.ms", value=f"{interval_ms}")
    group = request.AlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
    (result,) = client.ask(request(resources=[group]), 1).responses
    assert result.error_code == 0


def test_a_consumer_group_is_described_before_and_after_its_assignment(broker, listener, client):
    """The second member waits for a partition of the first, the others for an assignment."""
    set_assignment_interval(client, 0)
    client.ask(consumer_heartbeat("a", instance_id="i", rack_id="r"), 1)
    with Client(listener, "second") as second, Client(listener, None) as third:
        second.ask(consumer_heartbeat("b", subscribed_topic_names=["u", "t"]), 1)
        set_assignment_interval(client, 15_000)
        third.ask(
            consumer_heartbeat("c", subscribed_topic_names=[], subscribed_topic_regex="t.*"), 1
        )
    classic = member(client, metadata=encode_subscription(Subscription(("t",))))
    asked = ConsumerGroupDescribeRequest(
        group_ids=["g", "none", ""], include_authorized_operations=True
    )
    group, *others = to_json(client.ask(asked, 1), 1)["groups"]

    def partitions(*numbers):
        of_topic = {"topicId": broker.topic("t").id, "topicName": "t", "partitions": [*numbers]}
        return {"topicPartitions": [of_topic] if numbers else []}

    host, none = "/127.0.0.1", partitions()
    assert [tuple(each.values()) for each in group.pop("members")] == [
        ("a", "i", "r", 2, "test", host, ["t"], "", partitions(0, 1), partitions(0), 1),
        ("b", None, None, 3, "second", host, ["t", "u"], "", none, partitions(1), 1),
        ("c", None, None, 3, "", host, [], "t.*", none, none, 1),
        (classic.member_id, None, None, 3, "test", host, ["t"], "", none, none, 0),
    ]
    assert group == {
        "errorCode": 0,
        "errorMessage": None,
        "groupId": "g",
        "groupState": "Assigning",
        "groupEpoch": 5,
        "assignmentEpoch": 3,
        "assignorName": "uniform",
        "authorizedOperations": 3400,
    }
    assert [
        (each["groupId"], each["errorCode"], each["errorMessage"], each["authorizedOperations"])
        for each in others
    ] == [
        ("none", KAFKA_CODES["GROUP_ID_NOT_FOUND"], "Group none not found.", -(2**31)),
        ("", KAFKA_CODES["INVALID_GROUP_ID"], None, -(2**31)),
    ]


def test_a_consumer_group_is_described_as_not_classic(client):
    client.ask(consumer_heartbeat("m"), 0)
    (group,) = client.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (name_of(group.error_code), group.error_message) == (
        "GROUP_ID_NOT_FOUND",
        "Group g is not a classic group.",
    )


@versions("ListGroups", 4)
def test_groups_are_listed(client, version):
    stable(client)
    (group,) = client.ask(ListGroupsRequest(), version).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    if version >= 4:
        assert client.ask(ListGroupsRequest(states_filter=["Empty"]), version).groups == []
        assert client.ask(ListGroupsRequest(states_filter=[" stable "]), version).groups == [group]
    if version >= 5:
        assert group.group_type == "classic"
        for types, found in ((["Classic"], [group]), (["consumer", "none"], [])):
            assert client.ask(ListGroupsRequest(types_filter=types), version).groups == found


@versions("DeleteGroups")
def test_groups_are_deleted(broker, client, version):
    client.ask(commit(("t", 0, 5, "")), 9)
    asked = DeleteGroupsRequest(groups_names=["g", "none", "g"])
    results = client.ask(asked, version).results
    told = {each.group_id: name_of(each.error_code) for each in results}
    assert told == {"g": "NONE", "none": "GROUP_ID_NOT_FOUND"}
    stable(client)
    (result,) = client.ask(DeleteGroupsRequest(groups_names=["g"]), version).results
    assert name_of(result.error_code) == "NON_EMPTY_GROUP"


def test_a_consumer_group_outlives_its_offsets_until_they_would_expire(broker, client):
    """As in Kafka 4; a classic group ends with its last offset."""
    heartbeat = consumer_heartbeat("m")
    heartbeat.group_id = "c"
    assert client.ask(heartbeat, 1).error_code == 0
    heartbeat.member_epoch = -1
    assert client.ask(heartbeat, 1).error_code == 0
    client.ask(commit(("t", 0, 5, "")), 9)
    broker.delete_topic("t")
    listed = client.ask(ListGroupsRequest(), 5).groups
    assert [(each.group_id, each.group_type) for each in listed] == [("c", "consumer")]
    broker.groups.remove_expired()
    assert client.ask(ListGroupsRequest(), 5).groups == []


def test_groups_on_a_disk(tmp_path):
    """Handlers run in other threads there; a waiting join is completed through the loop."""
    with Broker(tmp_path, broker_config=CONFIG) as broker, broker.listen() as listener:
        broker.create_topic("t", 2)
        with Client(listener) as client:
            stable(client)
            client.ask(commit(("t", 0, 5, "")), 2)
    with Broker(tmp_path) as broker:
        assert broker.groups.describe("g").state == "Stable"


def test_responses_to_a_static_member_are_whole(client):
    def ask(request, version):
        response = to_json(client.ask(request, version), version)
        return {key: value for key, value in response.items() if key != "throttleTimeMs"}

    joined = ask(join(group_instance_id="i"), 9)
    member_id = joined["memberId"]
    assert member_id.startswith("i-")
    assert joined == {
        "errorCode": 0,
        "generationId": 1,
        "protocolType": "consumer",
        "protocolName": "range",
        "leader": member_id,
        "skipAssignment": False,
        "memberId": member_id,
        "members": [
            {"memberId": member_id, "groupInstanceId": "i", "metadata": "bWluZQ=="},
        ],
    }
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    sender = JoinGroupResponse(generation_id=1, member_id=member_id)
    asked = sync(sender, [(member_id, b"all")], group_instance_id="i", **named)
    assert ask(asked, 5) == {
        "errorCode": 0,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignment": "YWxs",
    }
    asked.group_instance_id = "other"
    assert name_of(ask(asked, 5)["errorCode"]) == "UNKNOWN_MEMBER_ID"
    described = DescribeGroupsRequest(groups=["g", "g"], include_authorized_operations=True)
    assert ask(described, 6)["groups"] == [
        {
            "errorCode": 0,
            "errorMessage": None,
            "groupId": "g",
            "groupState": "Stable",
            "protocolType": "consumer",
            "protocolData": "range",
            "members": [
                {
                    "memberId": member_id,
                    "groupInstanceId": "i",
                    "clientId": "test",
                    "clientHost": "/127.0.0.1",
                    "memberMetadata": "bWluZQ==",
                    "memberAssignment": "YWxs",
                }
            ],
            "authorizedOperations": 3400,
        }
    ]
    asked = commit(
        ("t", 1, 5, "m"),
        generation_id_or_member_epoch=1,
        member_id=member_id,
        group_instance_id="i",
    )
    asked.topics[0].partitions[0].committed_leader_epoch = 7
    assert ask(asked, 9)["topics"] == [
        {"name": "t", "partitions": [{"partitionIndex": 1, "errorCode": 0}]}
    ]
    asked.group_instance_id = "other"
    assert errors_of(client.ask(asked, 9)) == {("t", 1): "UNKNOWN_MEMBER_ID"}

    def offset(partition, committed, leader_epoch, metadata):
        return {
            "partitionIndex": partition,
            "committedOffset": committed,
            "committedLeaderEpoch": leader_epoch,
            "metadata": metadata,
            "errorCode": 0,
        }

    topics = [{"name": "t", "partitions": [offset(1, 5, 7, "m"), offset(0, -1, -1, "")]}]
    assert ask(fetch(7, indexes=(1, 0)), 7) == {"topics": topics, "errorCode": 0}
    assert ask(fetch(9, indexes=(1, 0)), 9)["groups"] == [
        {"groupId": "g", "topics": topics, "errorCode": 0}
    ]
    listed = {"groupId": "g", "protocolType": "consumer", "groupType": "classic"}
    assert ask(ListGroupsRequest(), 5) == {
        "errorCode": 0,
        "groups": [{**listed, "groupState": "Stable"}],
    }
    leaving = LeaveGroupRequest.MemberIdentity
    members = [leaving(group_instance_id="i"), leaving(member_id="z", group_instance_id="k")]
    assert ask(LeaveGroupRequest(group_id="g", members=members), 5) == {
        "errorCode": 0,
        "members": [
            {"memberId": "", "groupInstanceId": "i", "errorCode": 0},
            {
                "memberId": "z",
                "groupInstanceId": "k",
                "errorCode": KAFKA_CODES["UNKNOWN_MEMBER_ID"],
            },
        ],
    }
    assert ask(ListGroupsRequest(), 5)["groups"] == [{**listed, "groupState": "Empty"}]


# -- failing disks ---------------------------------------------------------------------------


def commit_as_member(joined, group_id="g", offset=6):
    asked = commit(
        ("t", 0, offset, ""),
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
    )
    asked.group_id = group_id
    return asked


def commit_to_idle(client, offset):
    asked = commit(("t", 0, offset, ""))
    asked.group_id = "idle"
    return set(errors_of(client.ask(asked, 9)).values())


def sync_again(client, joined):
    again = client.ask(join(joined.member_id), 9)
    asked = sync(again, [(joined.member_id, b"other")])
    return name_of(client.ask(asked, 3).error_code)


def sync_first(client, _):
    asked = join()
    asked.group_id = "new"
    joined = client.ask(asked, 2)
    asked = sync(joined, [(joined.member_id, b"all")])
    asked.group_id = "new"
    return name_of(client.ask(asked, 3).error_code)


def return_static(client, _):
    asked = join(group_instance_id="i")
    asked.group_id = "static"
    return name_of(client.ask(asked, 9).error_code)


def delete_idle(client, _):
    (result,) = client.ask(DeleteGroupsRequest(groups_names=["idle"]), 2).results
    return name_of(result.error_code)


def delete_offsets(client, _):
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[partition])
    answer = client.ask(OffsetDeleteRequest(group_id="idle", topics=[topic]), 0)
    return name_of(answer.error_code)


WRITES = {
    "OffsetCommit": lambda client, joined: errors_of(client.ask(commit_as_member(joined), 9))[
        "t", 0
    ],
    "OffsetCommit without a member": lambda client, _: commit_to_idle(client, 8).pop(),
    "SyncGroup": sync_again,
    "SyncGroup of a new group": sync_first,
    "JoinGroup of a static member": return_static,
    "DeleteGroups": delete_idle,
    "OffsetDelete": delete_offsets,
}
READS = {
    "Heartbeat": lambda client, joined: client.ask(
        HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id), 4
    ),
    "JoinGroup": lambda client, _: client.ask(join(), 9),
    "DescribeGroups": lambda client, _: client.ask(DescribeGroupsRequest(groups=["g"]), 4).groups[
        0
    ],
    "OffsetFetch": lambda client, _: client.ask(fetch(8), 8).groups[0],
}


def state_of(broker):
    """Return the members and offsets of each group from the stored records."""
    groups = broker.groups
    return {
        each.group_id: (
            [
                (member.member_id, member.assignment)
                for member in groups.describe(each.group_id).members
            ],
            {tp.partition: at.offset for tp, at in groups.committed(each.group_id).items()},
        )
        for each in groups.list_groups()
    }


@pytest.fixture(params=("memory", "disk"))
def home(request, tmp_path):
    """Return a function that opens a broker on the same files each time."""
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)

    def open_broker():
        options = {"clock": clock, "broker_config": CONFIG, "disk_faults": True}
        if request.param == "disk":
            return Broker(tmp_path, **options)
        return Broker("/data", fs=fs, **options)

    return open_broker


def make_groups(client):
    """Return the member of `g`; `static` has a static member, `idle` has offsets alone."""
    joined = stable(client)
    assert errors_of(client.ask(commit_as_member(joined, offset=5), 9)) == {("t", 0): "NONE"}
    assert commit_to_idle(client, 7) == {"NONE"}
    asked = join(group_instance_id="i")
    asked.group_id = "static"
    static = client.ask(asked, 9)
    asked = sync(static, [(static.member_id, b"its")], group_instance_id="i")
    asked.group_id = "static"
    assert name_of(client.ask(asked, 3).error_code) == "NONE"
    return joined


@pytest.mark.parametrize("name", WRITES)
def test_nothing_acknowledged_is_lost_if_the_disk_of_the_coordinator_fails(home, name):
    """Clients look for another coordinator; after a restart the groups are as acknowledged."""
    with home() as broker, broker.listen() as listener, Client(listener) as client:
        broker.create_topic("t", 2)
        joined = make_groups(client)
        before = state_of(broker)
        with broker.fail("append", error="EIO", topic="__consumer_offsets") as rule:
            assert WRITES[name](client, joined) == "NOT_COORDINATOR"
            assert rule.hits
        for other in WRITES.keys() - {"SyncGroup", "SyncGroup of a new group"}:
            assert WRITES[other](client, joined) == "NOT_COORDINATOR", other
        for other, ask in READS.items():
            assert name_of(ask(client, joined).error_code) == "NOT_COORDINATOR", other
    with home() as broker, broker.listen() as listener, Client(listener) as client:
        assert state_of(broker) == before
        assert READS["Heartbeat"](client, joined).error_code == 0
        assert WRITES[name](client, joined) == "NONE"


def test_the_last_member_leaves_though_that_cannot_be_stored(home):
    """As in Kafka, the response has no error: after a restart the session of the member ends."""
    with home() as broker, broker.listen() as listener, Client(listener) as client:
        broker.create_topic("t", 2)
        joined = make_groups(client)
        before = state_of(broker)
        leaving = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
        with broker.fail("append", error="EIO", topic="__consumer_offsets"):
            left = client.ask(LeaveGroupRequest(group_id="g", members=[leaving]), 4)
        assert [left.error_code, *(each.error_code for each in left.members)] == [0, 0]
    with home() as broker:
        assert state_of(broker) == before


@pytest.mark.parametrize(
    "limit",
    ({"segment.bytes": "900"}, {"max.message.bytes": "900"}),
    ids=lambda limit: next(iter(limit)),
)
def test_records_that_are_too_large_are_refused_with_an_error_that_clients_know(
    broker, client, limit
):
    """No part of the commit or the assignment is stored."""
    joined = make_groups(client)
    before = state_of(broker)
    broker.alter_configs("__consumer_offsets", limit)
    asked = commit(("t", 0, 9, "m" * 1000))
    asked.group_id = "idle"
    assert errors_of(client.ask(asked, 9)) == {("t", 0): "INVALID_COMMIT_OFFSET_SIZE"}
    again = client.ask(join(joined.member_id), 9)
    answer = client.ask(sync(again, [(joined.member_id, b"a" * 1000)]), 3)
    assert name_of(answer.error_code) == "UNKNOWN_SERVER_ERROR"
    (described,) = client.ask(DescribeGroupsRequest(groups=["g"]), 4).groups
    assert (described.group_state, described.members[0].member_assignment) == (
        "PreparingRebalance",
        b"",
    )
    assert state_of(broker)["idle"] == before["idle"]
