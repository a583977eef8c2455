"""Producers in random order against a model of the records a read_committed reader must see.

Three transactional producers, one of which lingers, and one without transactions write to two
partitions, and offsets of two consumer groups. They commit, abort, time out, are replaced by others
of their id and still continue; batches are sent again; the process is killed or closes. After each
step every partition must show the decided records, in order, up to the first undecided one, and
each group must have the newest committed offset.
"""

from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logstore import OffsetAndMetadata
from logstore.errors import InvalidProducerEpochError, LogStoreError
from logstore.types import TopicPartition
from tests.support.world.edited_batches import with_offset_and_epoch
from tests.support.world.transactions import Bench

SLOTS = (0, 1, 2)
LINGERING = 2
PARTITIONS = (0, 1)
GROUPS = ("g", "h")
SOURCE = TopicPartition("t", 0)
ONE_PARTITION = {"offsets.topic.num.partitions": 1}
TIMEOUT_MS = 60_000
FOREVER_MS = 2**31 - 1

slots = st.sampled_from(SLOTS)
partitions = st.sampled_from(PARTITIONS)


class Transaction:
    """A transaction that has data, or may have."""

    def __init__(self, start_ms):
        self.start_ms = start_ms
        self.outcome = None

    def is_late(self, now_ms):
        return self.outcome is None and self.start_ms + TIMEOUT_MS < now_ms


class Slot:
    """A transactional id, its newest producer, and the producer's open transaction."""

    def __init__(self):
        self.leave(None)

    def leave(self, producer):
        self.producer = producer
        self.has_begun = False
        self.end()

    def end(self):
        self.has_begun = False
        self.transaction = None
        self.buffer = {}

    @property
    def is_fenced(self):
        return self.transaction is not None and self.transaction.outcome is not None


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.bench = Bench(state_partitions=2, broker_config=ONE_PARTITION)
        self.bench.broker.create_topic("t", len(PARTITIONS))
        self.slots = [Slot() for _ in SLOTS]
        self.open_ones = {}
        self.older = []
        self.written = {number: [] for number in PARTITIONS}
        self.offsets = {group: [] for group in GROUPS}
        self.number = 0
        self.plain = self.bench.broker.producer()

    def teardown(self):
        self.bench.broker.close()

    # -- the model -------------------------------------------------------------------------

    @property
    def now_ms(self):
        return self.bench.clock.now_ms()

    def visible(self, partition):
        seen = []
        for value, transaction in self.written[partition]:
            if transaction is not None and transaction.outcome is None:
                break
            if transaction is None or transaction.outcome == "commit":
                seen.append(value)
        return seen

    def write(self, slot, number, values):
        """Note the records that the producer of a slot wrote."""
        transaction = self.transaction(slot)
        self.written[number] += [(value, transaction) for value in values]

    def transaction(self, slot):
        """Return the transaction of a slot, which its first data open."""
        own = self.slots[slot]
        if own.transaction is None:
            own.transaction = self.open_ones[slot] = Transaction(self.now_ms)
        return own.transaction

    def decide(self, slot, outcome):
        transaction = self.open_ones.pop(slot, None)
        if transaction is not None:
            transaction.outcome = outcome

    def value(self):
        self.number += 1
        return b"%d" % self.number

    # -- steps -----------------------------------------------------------------------------

    @rule(slot=slots)
    def init(self, slot):
        own = self.slots[slot]
        if own.producer is not None:
            self.older.append(own.producer)
        linger_ms = FOREVER_MS if slot == LINGERING else 0
        own.leave(self.bench.transactional(f"id {slot}", linger_ms=linger_ms))
        self.decide(slot, "abort")

    @rule(slot=slots, partition=partitions)
    def send(self, slot, partition):
        own = self.slots[slot]
        if own.producer is None:
            self.init(slot)
        if not own.has_begun:
            own.producer.begin_transaction()
            own.has_begun = True
        value = self.value()
        if own.is_fenced and slot != LINGERING:
            with pytest.raises(LogStoreError):
                own.producer.send("t", value, partition=partition).get()
            self.give_up(slot)
            return
        future = own.producer.send("t", value, partition=partition)
        if slot == LINGERING:
            own.buffer.setdefault(partition, []).append(value)
        else:
            assert future.succeeded()
            self.write(slot, partition, [value])

    @rule(slot=slots, group=st.sampled_from(GROUPS))
    def send_offsets(self, slot, group):
        own = self.slots[slot]
        if own.producer is None:
            self.init(slot)
        if not own.has_begun:
            own.producer.begin_transaction()
            own.has_begun = True
        self.number += 1
        offsets = {SOURCE: OffsetAndMetadata(self.number)}
        if own.is_fenced:
            with pytest.raises(LogStoreError):
                own.producer.send_offsets_to_transaction(offsets, group)
            self.give_up(slot)
            return
        own.producer.send_offsets_to_transaction(offsets, group)
        self.offsets[group].append((self.number, self.transaction(slot)))

    @rule(partition=partitions)
    def flush(self, partition):
        """Let the lingering producer send its batches for one partition."""
        own = self.slots[LINGERING]
        if own.buffer and not own.is_fenced:
            for number, values in own.buffer.items():
                self.write(LINGERING, number, values)
            own.buffer = {}
            own.producer.flush()

    @rule(slot=slots)
    def commit(self, slot):
        self.end(slot, "commit")

    @rule(slot=slots)
    def abort(self, slot):
        self.end(slot, "abort")

    def end(self, slot, outcome):
        own = self.slots[slot]
        if not own.has_begun:
            return
        call = getattr(own.producer, f"{outcome}_transaction")
        if own.is_fenced:
            with pytest.raises(InvalidProducerEpochError):
                call()
            self.give_up(slot)
            return
        call()
        if outcome == "commit":
            for number, values in own.buffer.items():
                self.write(slot, number, values)
        self.decide(slot, outcome)
        own.end()

    def give_up(self, slot):
        """Leave a producer that learnt that it is fenced."""
        self.older.append(self.slots[slot].producer)
        self.slots[slot].leave(None)

    @rule(partition=partitions)
    def send_outside(self, partition):
        value = self.value()
        assert self.plain.send("t", value, partition=partition).succeeded()
        self.written[partition].append((value, None))

    @precondition(lambda self: self.older)
    @rule(
        data=st.data(),
        actions=st.lists(
            st.sampled_from(("begin", "send", "offsets", "commit", "abort", "flush", "close"))
        ),
    )
    def older_one_goes_on(self, data, actions):
        """No action of a replaced producer changes anything."""
        producer = data.draw(st.sampled_from(self.older))
        for action in ("send", *actions):
            with suppress(LogStoreError):
                match action:
                    case "send":
                        for number in PARTITIONS:
                            producer.send("t", b"never", partition=number)
                    case "offsets":
                        producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(0)}, "g")
                    case "flush" | "close":
                        getattr(producer, action)()
                    case _:
                        getattr(producer, f"{action}_transaction")()

    @rule(partition=partitions, back=st.integers(1, 8))
    def send_again(self, partition, back):
        """A batch that is sent again is a duplicate or refused."""
        log = self.bench.log("t", partition)
        data = [batch for batch in log.reader.batches(0) if not batch.header.is_control]
        if len(data) >= back:
            with suppress(LogStoreError):
                again = with_offset_and_epoch(data[-back].data, 0, -1)
                assert log.writer.append_batches(again).is_duplicate

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds):
        self.bench.clock.advance(seconds=seconds)
        self.bench.coordinator.abort_timed_out()
        for slot, transaction in list(self.open_ones.items()):
            if transaction.is_late(self.now_ms):
                self.decide(slot, "abort")

    @rule(how=st.sampled_from(("kill", "kill", "close")))
    def restart(self, how):
        if how == "kill":
            self.bench.reopen()
        else:
            self.bench.broker.close()
            self.bench.open()
            for slot, own in enumerate(self.slots):
                if own.transaction is not None:
                    self.decide(slot, "abort")
        for own in self.slots:
            own.leave(None)
        self.older = []
        self.plain = self.bench.broker.producer()

    @invariant()
    def readers_see_what_is_decided(self):
        for number in PARTITIONS:
            assert self.bench.seen("t", number) == self.visible(number)
            everything = [value for value, _ in self.written[number]]
            assert self.bench.seen("t", number, "read_uncommitted") == everything

    @invariant()
    def groups_are_where_a_commit_left_them(self):
        for group, sent in self.offsets.items():
            held = [offset for offset, transaction in sent if transaction.outcome == "commit"]
            expected = {SOURCE: OffsetAndMetadata(held[-1])} if held else {}
            assert self.bench.broker.groups.committed(group) == expected


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=max(settings().max_examples // 2, 1), stateful_step_count=50
)
