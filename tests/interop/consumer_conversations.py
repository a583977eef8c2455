"""The same conversations about consumer groups with a running Kafka 4.3.1 and with this engine.

Each seed is a random history of one group: members of both protocols join, report, revoke, lose
answers, change subscriptions, leave, are fenced, and commit. Both brokers have topics with the same
ids, so that the assignors must choose the same partitions. After each request the answers, and
after some requests the descriptions of the group, must be equal. Run by hand:

    python -m tests.interop.consumer_conversations 0 100
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from logstore import Broker
from logstore.coordinator.groups.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from tests.support.interop.caller import Caller
from tests.support.interop.real_broker import GROUP_FEATURES, RealBroker, kafka_4_3
from tests.support.world.wire import name_of

TOPICS = {"ca": 3, "cb": 5, "cc": 1}
PATTERNS = ("c[ab]", "c.*", "none", "(?=look)", "[")
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.coordinator.append.linger.ms": "0",
    "log.roll.ms": "600000",
    "log.cleaner.enable": "false",
}
RESOLUTION_S = 0.3
"""Time in which Kafka resolves a pattern, in the background."""


class Side:
    """One of the two brokers: calls it, and translates its answers to plain values."""

    def __init__(self, bootstrap):
        self.caller = Caller(bootstrap)
        answer = self.caller.call("Metadata", 12, {"topics": None})
        self.ids = {each.name: each.topic_id for each in answer.topics if each.name in TOPICS}
        self.names = {topic_id: name for name, topic_id in self.ids.items()}

    def heartbeat(self, version, fields):
        owned = fields.get("topic_partitions")
        if owned is not None:
            fields = {
                **fields,
                "topic_partitions": [
                    {"topic_id": self.ids[name], "partitions": numbers}
                    for name, numbers in owned.items()
                ],
            }
        answer = self.caller.call("ConsumerGroupHeartbeat", version, fields)
        assignment = None
        if answer.assignment is not None:
            assignment = {
                self.names[each.topic_id]: sorted(each.partitions)
                for each in answer.assignment.topic_partitions
            }
        return {
            "error": name_of(answer.error_code),
            "member": answer.member_id,
            "epoch": answer.member_epoch,
            "interval": answer.heartbeat_interval_ms,
            "assignment": assignment,
        }

    def describe(self, group):
        (found,) = self.caller.call(
            "ConsumerGroupDescribe",
            1,
            {"group_ids": [group], "include_authorized_operations": False},
        ).groups
        return {
            "error": name_of(found.error_code),
            "state": found.group_state,
            "epochs": (found.group_epoch, found.assignment_epoch),
            "assignor": found.assignor_name,
            "members": sorted(
                (
                    each.member_id,
                    each.instance_id,
                    each.member_epoch,
                    sorted(each.subscribed_topic_names),
                    each.subscribed_topic_regex,
                    _partitions(each.assignment),
                    _partitions(each.target_assignment),
                    each.member_type,
                    each.client_id,
                )
                for each in found.members
            ),
        }

    def commit(self, group, member_id, epoch, topic, partition):
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": partition, "committed_offset": 1}],
                }
            ],
        }
        answer = self.caller.call("OffsetCommit", 9, fields)
        return [name_of(p.error_code) for each in answer.topics for p in each.partitions]

    def fetch(self, group, member_id, epoch):
        asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": None}
        (found,) = self.caller.call(
            "OffsetFetch", 9, {"groups": [asked], "require_stable": True}
        ).groups
        return name_of(found.error_code), sorted(
            (each.name, p.partition_index, p.committed_offset)
            for each in found.topics
            for p in each.partitions
        )

    def list(self, group):
        answer = self.caller.call("ListGroups", 5, {"states_filter": [], "types_filter": []})
        return [
            (each.group_state, each.group_type, each.protocol_type)
            for each in answer.groups
            if each.group_id == group
        ]

    def join(self, group, member_id, instance, topics, owned):
        subscription = Subscription(tuple(topics), None, tuple(owned))
        fields = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": encode_subscription(subscription)}],
        }
        answer = self.caller.call("JoinGroup", 9, fields)
        return {
            "error": name_of(answer.error_code),
            "generation": answer.generation_id,
            "protocol": (answer.protocol_type, answer.protocol_name),
            "leader": answer.leader,
        }

    def sync(self, group, member_id, instance, generation):
        fields = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        }
        answer = self.caller.call("SyncGroup", 5, fields)
        assignment = None
        if answer.error_code == 0:
            assignment = decode_assignment(bytes(answer.assignment)).partitions
        return name_of(answer.error_code), assignment

    def classic_heartbeat(self, group, member_id, instance, generation):
        fields = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": instance,
        }
        return name_of(self.caller.call("Heartbeat", 4, fields).error_code)

    def leave(self, group, member_id, instance):
        member = {"member_id": member_id, "group_instance_id": instance}
        answer = self.caller.call("LeaveGroup", 5, {"group_id": group, "members": [member]})
        return name_of(answer.error_code), [name_of(each.error_code) for each in answer.members]


def _partitions(assignment):
    return sorted(
        (each.topic_name, sorted(each.partitions)) for each in assignment.topic_partitions
    )


class Difference(AssertionError):
    """The two brokers answer differently."""


class Conversation:
    """One seed's history of one group, with both brokers."""

    def __init__(self, seed, kafka, ours, tally):
        self.rng = random.Random(seed)
        self.seed = seed
        self.group = f"g{seed}"
        self.kafka, self.ours, self.tally = kafka, ours, tally
        self.log = []
        self.members = {}
        self.is_mixed = self.rng.random() < 0.4

    def ask(self, call, *arguments):
        """Make a call on both sides, and return the common answer."""
        expected, found = (getattr(side, call)(*arguments) for side in (self.kafka, self.ours))
        self.log.append((call, arguments, expected))
        errors = expected.get("error") if isinstance(expected, dict) else expected
        self.tally[call, str(errors)[:60] if call != "describe" else "-"] += 1
        if expected != found:
            steps = "\n  ".join(map(str, self.log[-12:]))
            raise Difference(f"seed {self.seed}, after\n  {steps}\nkafka {expected}\nours  {found}")
        return expected

    def live(self, steps=30):
        for _ in range(steps):
            self.rng.choice(
                (self.add, self.add, self.beat, self.beat, self.beat, self.beat, self.beat)
                + (self.change, self.leave, self.commit, self.describe, self.zombie, self.odd)
                + ((self.classic, self.classic) if self.is_mixed else ())
            )()
        for member_id in list(self.members):
            self.heartbeat(member_id)
        self.describe()

    def add(self):
        if len(self.members) < 5:
            instance = self.rng.choice((None, None, None, "i1", "i2"))
            member_id = f"m{self.rng.randrange(12)}"
            member = self.members.setdefault(
                member_id, {"instance": instance, "epoch": 0, "owned": {}, "before": (0, {})}
            )
            if member.get("classic"):
                return
            member.update(epoch=0, owned={})
            self.heartbeat(member_id, **self.subscription())

    def subscription(self):
        fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": {}}
        topics = self.rng.sample(sorted(TOPICS), self.rng.randint(1, 3))
        if self.rng.random() < 0.25:
            # Kafka takes members for equally subscribed until the next change of a subscription,
            # so that a pattern that is not resolved yet may leave all of them without a target.
            self.beat()
            fields["subscribed_topic_regex"] = self.rng.choice(PATTERNS)
            if self.rng.random() < 0.5:
                fields["subscribed_topic_names"] = topics
        else:
            fields["subscribed_topic_names"] = topics
        fields["server_assignor"] = self.rng.choice((None, None, "range", "uniform", "other"))
        return fields

    def heartbeat(self, member_id, **fields):
        member = self.members.get(member_id)
        if member is None or member.get("classic"):
            return
        fields = {
            "group_id": self.group,
            "member_id": member_id,
            "member_epoch": member["epoch"],
            "instance_id": member["instance"],
            **fields,
        }
        if "topic_partitions" not in fields and self.rng.random() < 0.7:
            fields["topic_partitions"] = member["owned"]
        answer = self.ask("heartbeat", 1, fields)
        if fields.get("subscribed_topic_regex"):
            time.sleep(RESOLUTION_S)
        if answer["error"] == "NONE":
            if self.rng.random() < 0.15:
                return  # the answer is lost
            member["before"] = member["epoch"], member["owned"]
            member["epoch"] = answer["epoch"]
            if answer["assignment"] is not None:
                member["owned"] = answer["assignment"]
        elif self.rng.random() < 0.8:
            del self.members[member_id]

    def pick(self, *, classic=False):
        known = [
            each for each in self.members if bool(self.members[each].get("classic")) == classic
        ]
        return self.rng.choice(sorted(known)) if known else None

    def beat(self):
        if (member_id := self.pick()) is not None:
            self.heartbeat(member_id)

    def change(self):
        if (member_id := self.pick()) is not None:
            owned = self.members[member_id]["owned"]
            fields = {**self.subscription(), "topic_partitions": owned}
            if self.rng.random() < 0.5:
                fields["rack_id"] = "r"
            self.heartbeat(member_id, **fields)

    def leave(self):
        if (member_id := self.pick()) is not None:
            member = self.members.pop(member_id)
            epoch = self.rng.choice((-1, -2)) if member["instance"] else -1
            fields = {
                "group_id": self.group,
                "member_id": member_id,
                "member_epoch": epoch,
                "instance_id": member["instance"],
            }
            self.ask("heartbeat", 1, fields)

    def commit(self):
        if (member_id := self.pick()) is not None:
            epoch = max(0, self.members[member_id]["epoch"] + self.rng.choice((0, 0, -1, -2, 1)))
            topic = self.rng.choice(sorted(TOPICS))
            number = self.rng.randrange(TOPICS[topic])
            self.ask("commit", self.group, member_id, epoch, topic, number)
            self.ask("fetch", self.group, member_id, epoch)

    def describe(self):
        self.ask("describe", self.group)
        self.ask("list", self.group)

    def zombie(self):
        """Send an epoch that may be too old or too new."""
        if (member_id := self.pick()) is not None:
            member = self.members[member_id]
            epoch, owned = self.rng.choice((member["before"], (member["epoch"] + 1, {})))
            fields = {
                "group_id": self.group,
                "member_id": member_id,
                "member_epoch": max(epoch, 1),
                "instance_id": member["instance"],
                "topic_partitions": owned,
            }
            answer = self.ask("heartbeat", 1, fields)
            if answer["error"] == "NONE":
                member["epoch"] = answer["epoch"]
                if answer["assignment"] is not None:
                    member["owned"] = answer["assignment"]

    def odd(self):
        """Send a request that is invalid, or of a member that does not exist."""
        base = {"group_id": self.group, "member_id": "odd", "member_epoch": 0}
        fields = self.rng.choice(
            (
                {"member_id": ""},
                {"group_id": " "},
                {"member_epoch": 5},
                {"member_epoch": -1},
                {"member_epoch": -2},
                {"member_epoch": -2, "instance_id": "i1"},
                {"member_epoch": -3},
                {"rebalance_timeout_ms": 5},
                {"rebalance_timeout_ms": 5, "topic_partitions": {"ca": [0]}},
                {"rebalance_timeout_ms": 5, "topic_partitions": {}},
                {"instance_id": "", "topic_partitions": {}},
                {"rack_id": "", "topic_partitions": {}},
                {"member_epoch": 3, "instance_id": "i2"},
            )
        )
        self.ask("heartbeat", 1, {**base, **fields})

    # -- classic members -----------------------------------------------------------------------

    def classic(self):
        member_id = self.pick(classic=True)
        if member_id is None or self.rng.random() < 0.3:
            self.classic_join(f"c{self.rng.randrange(3)}")
            return
        member = self.members[member_id]
        action = self.rng.choice(("beat", "beat", "sync", "join", "leave"))
        if action == "join":
            self.classic_join(member_id)
        elif action == "leave":
            del self.members[member_id]
            self.ask("leave", self.group, member_id, member["instance"])
        elif action == "sync":
            self.classic_sync(member_id)
        else:
            self.ask(
                "classic_heartbeat", self.group, member_id, member["instance"], member["epoch"]
            )

    def classic_sync(self, member_id):
        member = self.members[member_id]
        answer = self.ask("sync", self.group, member_id, member["instance"], member["epoch"])
        if answer[0] == "NONE":
            member["owned"] = answer[1]

    def classic_join(self, member_id):
        """Join a consumer group with members, with an id that the client chose."""
        if not any(not each.get("classic") for each in self.members.values()):
            return
        if (state := self.ask("list", self.group)) and state[0][1] != "consumer":
            return
        if not state or state[0][0] == "Empty":
            return
        member = self.members.setdefault(
            member_id, {"instance": None, "epoch": -1, "owned": (), "classic": True}
        )
        topics = self.rng.sample(sorted(TOPICS), self.rng.randint(1, 3))
        owned = member["owned"] if self.rng.random() < 0.5 else ()
        answer = self.ask("join", self.group, member_id, member["instance"], topics, owned)
        if answer["error"] == "NONE":
            member["epoch"] = answer["generation"]
            if self.rng.random() < 0.7:
                self.classic_sync(member_id)
        else:
            del self.members[member_id]


def run(seeds, home, tally=None):
    """Run the conversations of some seeds; return the counted answers."""
    tally = Counter() if tally is None else tally
    theirs = RealBroker(kafka_4_3(), Path(home) / "kafka", SETTINGS, features=GROUP_FEATURES)
    config = {key: value for key, value in SETTINGS.items() if key.startswith("group.consumer")}
    with theirs, Broker(broker_config=config) as broker:
        kafka = Caller(theirs.bootstrap)
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in TOPICS.items()
        ]
        kafka.call("CreateTopics", 7, {"topics": topics, "timeout_ms": 30_000})
        kafka.close()
        their_side = Side(theirs.bootstrap)
        for name, count in TOPICS.items():
            broker.manager.topics.create(name, count, {}, topic_id=their_side.ids[name])
        with broker.listen() as listener:
            our_side = Side(listener.bootstrap)
            wait_for_coordinator(their_side, our_side)
            for seed in seeds:
                Conversation(seed, their_side, our_side, tally).live()
    return tally


def wait_for_coordinator(*sides):
    for side in sides:
        fields = {"key_type": 0, "coordinator_keys": ["x"]}
        for _ in range(200):
            (found,) = side.caller.call("FindCoordinator", 4, fields).coordinators
            if found.error_code == 0 and side.fetch("x", None, -1)[0] == "NONE":
                break
            time.sleep(0.1)


def main():
    first, last = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as home:
        tally = run(range(first, last), home)
    for key, count in sorted(tally.items()):
        sys.stdout.write(f"{count} {' '.join(map(str, key))}\n")


if __name__ == "__main__":
    main()
