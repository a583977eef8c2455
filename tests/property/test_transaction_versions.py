"""Random histories of transactions of both versions against a small model.

Two transactional ids, one of them close to its last epoch, write to two partitions. Before each
transaction a client chooses its version, and it may change it before the end. Clients lose
responses and repeat calls, use older producers, and are fenced; transactions time out; the process
is killed. The model knows what each call must return, and the records of each partition.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logstore.coordinator.host import NO_EPOCH
from logstore.coordinator.transactions.produce import append_as_client
from logstore.coordinator.transactions.state import (
    LAST_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
)
from logstore.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.types import TopicPartition
from tests.support.world.transactions import Bench

V0, V2 = TransactionVersion.V0, TransactionVersion.V2
IDS = ("fresh", "worn")
PARTITIONS = (0, 1)
TIMEOUT_MS = 60_000

FENCED, MAPPING, STATE = ProducerFencedError, InvalidProducerIdMappingError, InvalidTxnStateError
BUMP, SAME = "the next epoch", "the newest producer"

ENDS = {
    # state, whether the epoch is the newest or the one before, whether to commit
    ("Empty", "newest", False): BUMP,
    ("Empty", "newest", True): STATE,
    ("Empty", "before", False): FENCED,
    ("Empty", "before", True): FENCED,
    ("CompleteAbort", "newest", False): BUMP,
    ("CompleteAbort", "newest", True): STATE,
    ("CompleteAbort", "before", False): SAME,
    ("CompleteAbort", "before", True): STATE,
    ("CompleteCommit", "newest", False): BUMP,
    ("CompleteCommit", "newest", True): STATE,
    ("CompleteCommit", "before", False): STATE,
    ("CompleteCommit", "before", True): SAME,
    ("Ongoing", "newest", False): BUMP,
    ("Ongoing", "newest", True): BUMP,
    ("Ongoing", "before", False): FENCED,
    ("Ongoing", "before", True): FENCED,
}
"""Results of EndTxn with version 2: the table in Kafka's TransactionCoordinator."""


@dataclass
class Owner:
    """A transactional id in the model."""

    producer: ProducerIdAndEpoch
    state: str = "Empty"
    start_ms: int = 0
    before: ProducerIdAndEpoch | None = None
    older: list[ProducerIdAndEpoch] = field(default_factory=list)
    partitions: set[int] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)
    records: list[list] = field(default_factory=list)

    def open(self, partition, now_ms):
        if self.state != "Ongoing":
            self.state, self.start_ms = "Ongoing", now_ms
        self.partitions.add(partition)

    def move(self, producer):
        """Continue with another producer."""
        if producer != self.producer:
            self.before = self.producer
            self.older.append(self.producer)
            self.producer = producer
            self.sequences = {}

    def end(self, *, commit):
        self.state = "CompleteCommit" if commit else "CompleteAbort"
        for record in self.records:
            record[1] = commit
        self.partitions, self.records = set(), []


class VersionMachine(RuleBasedStateMachine):
    @initialize()
    def open(self):
        self.bench = Bench(state_partitions=1)
        self.bench.broker.create_topic("t", len(PARTITIONS))
        self.written = {number: [] for number in PARTITIONS}
        self.number = 0
        coordinator = self.bench.coordinator
        self.owners = {each: Owner(coordinator.init_producer_id(each, TIMEOUT_MS)) for each in IDS}
        worn = self.owners["worn"]
        worn.producer = worn.producer._replace(producer_epoch=LAST_EPOCH - 2)
        metadata = TransactionMetadata(
            "worn", *worn.producer, TIMEOUT_MS, TransactionState.EMPTY, last_update_ms=self.now_ms
        )
        coordinator._log.append(metadata, NO_EPOCH, now_ms=self.now_ms, durable=True)
        self.bench.reopen()

    def teardown(self):
        self.bench.broker.close()

    @property
    def now_ms(self):
        return self.bench.clock.now_ms()

    @property
    def coordinator(self):
        return self.bench.coordinator

    def bumped(self, producer, found):
        """Check the producer that follows another one: the next epoch, or a new id."""
        if producer.producer_epoch < LAST_EPOCH:
            assert found == (producer.producer_id, producer.producer_epoch + 1)
        else:
            assert found.producer_epoch == 0
            used = {each.producer.producer_id for each in self.owners.values()}
            assert found.producer_id not in used
        return found

    # -- steps -----------------------------------------------------------------------------

    @rule(name=st.sampled_from(IDS))
    def init(self, name):
        owner = self.owners[name]
        found = self.coordinator.init_producer_id(name, TIMEOUT_MS)
        assert found not in owner.older
        assert found != owner.producer
        owner.end(commit=False)
        owner.move(found)
        owner.state, owner.before = "Empty", None

    @rule(name=st.sampled_from(IDS))
    def renew(self, name):
        """Request the next epoch outside of a transaction, and lose the response."""
        owner = self.owners[name]
        if owner.state == "Ongoing":
            return
        producer = owner.producer
        found = self.coordinator.init_producer_id(name, TIMEOUT_MS, expected=producer)
        self.bumped(producer, found)
        if producer.producer_id == found.producer_id:
            again = self.coordinator.init_producer_id(name, TIMEOUT_MS, expected=producer)
            assert again == found
        owner.move(found)
        owner.state, owner.before = "Empty", None

    @rule(name=st.sampled_from(IDS), partition=st.sampled_from(PARTITIONS), version=st.booleans())
    def send(self, name, partition, version):
        owner = self.owners[name]
        if not version:
            tp = TopicPartition("t", partition)
            self.coordinator.add_partitions(name, owner.producer, [tp])
        self.number += 1
        value = b"%d" % self.number
        sequence = owner.sequences.get(partition, 0)
        self.append(name, owner.producer, partition, sequence, value, adds=version)
        owner.sequences[partition] = sequence + 1
        owner.open(partition, self.now_ms)
        record = [value, None]
        owner.records.append(record)
        self.written[partition].append(record)

    def append(self, name, producer, partition, sequence, value, *, adds):
        batch = build_batch(
            [Record(0, self.now_ms, b"k", value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        manager = self.bench.broker.manager
        tp = TopicPartition("t", partition)
        return append_as_client(manager, self.coordinator, tp, batch, name, adds=adds)

    @rule(
        name=st.sampled_from(IDS),
        partition=st.sampled_from(PARTITIONS),
        sequence=st.integers(0, 3),
        adds=st.booleans(),
        data=st.data(),
    )
    def send_late(self, name, partition, sequence, adds, data):
        """A batch of an older producer is never written, and opens no transaction."""
        owner = self.owners[name]
        if not owner.older:
            return
        producer = data.draw(st.sampled_from(owner.older))
        with pytest.raises((InvalidProducerEpochError, InvalidProducerIdMappingError)):
            self.append(name, producer, partition, sequence, b"late", adds=adds)

    @rule(name=st.sampled_from(IDS), commit=st.booleans())
    def end(self, name, commit):
        """End with version 0."""
        owner = self.owners[name]

        def end():
            return self.coordinator.end_transaction(name, owner.producer, commit=commit)

        if owner.state == "Ongoing":
            assert end() == owner.producer
            owner.end(commit=commit)
            owner.before = None
        elif owner.state == ("CompleteCommit" if commit else "CompleteAbort"):
            assert end() == owner.producer
        else:
            with pytest.raises(InvalidTxnStateError):
                end()

    @rule(name=st.sampled_from(IDS), commit=st.booleans(), times=st.integers(1, 2))
    def end_v2(self, name, commit, times):
        """End with version 2; a repetition has the result of the first call."""
        owner = self.owners[name]
        producer = owner.producer
        self.end_as(name, producer, "newest", commit=commit)
        if times == 2 and owner.producer != producer:
            self.end_as(name, producer, "before", commit=commit)

    @rule(name=st.sampled_from(IDS), commit=st.booleans())
    def end_v2_again(self, name, commit):
        owner = self.owners[name]
        before = owner.before
        if before is not None and before.producer_id == owner.producer.producer_id:
            self.end_as(name, before, "before", commit=commit)

    def end_as(self, name, producer, relation, *, commit):
        owner = self.owners[name]
        expected = ENDS[owner.state, relation, commit]

        def end():
            return self.coordinator.end_transaction(name, producer, commit=commit, version=V2)

        if expected == SAME:
            assert end() == owner.producer
        elif expected == BUMP:
            found = self.bumped(producer, end())
            owner.end(commit=commit)
            owner.move(found)
        else:
            with pytest.raises(expected):
                end()

    @rule(name=st.sampled_from(IDS), commit=st.booleans(), version=st.sampled_from((V0, V2)))
    def end_as_another(self, name, commit, version):
        """Producers that never were, or that are older than the one before."""
        owner = self.owners[name]
        producer_id, epoch = owner.producer
        for producer, error in (
            (ProducerIdAndEpoch(producer_id, epoch + 1), FENCED),
            (ProducerIdAndEpoch(999_999, epoch), MAPPING),
            *((each, (FENCED, MAPPING)) for each in owner.older if each != owner.before),
        ):
            if version is V2 and producer.producer_epoch + 1 == epoch:
                continue  # Kafka takes the epoch before for a repetition
            if version is V2 and producer.producer_epoch == LAST_EPOCH and epoch == 0:
                continue
            with pytest.raises(error):
                self.coordinator.end_transaction(name, producer, commit=commit, version=version)

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds):
        self.bench.clock.advance(seconds=seconds)
        self.coordinator.abort_timed_out()
        for name, owner in self.owners.items():
            if owner.state == "Ongoing" and owner.start_ms + TIMEOUT_MS < self.now_ms:
                found = self.coordinator.transactions()[name].producer
                self.bumped(owner.producer, found)
                owner.end(commit=False)
                owner.move(found)

    @rule()
    def restart(self):
        self.bench.reopen()

    # -- what holds -----------------------------------------------------------------------

    @invariant()
    def states_are_the_models(self):
        known = self.coordinator.transactions()
        for name, owner in self.owners.items():
            assert known[name].state.kafka_name == owner.state
            assert known[name].producer == owner.producer
            assert {tp.partition for tp in known[name].partitions} == owner.partitions

    @invariant()
    def readers_see_what_is_decided(self):
        for number, records in self.written.items():
            visible = []
            for value, outcome in records:
                if outcome is None:
                    break
                if outcome:
                    visible.append(value)
            assert self.bench.seen("t", number) == visible
            everything = [value for value, _ in records]
            assert self.bench.seen("t", number, "read_uncommitted") == everything


TestVersions = VersionMachine.TestCase
TestVersions.settings = settings(
    max_examples=max(settings().max_examples // 2, 1), stateful_step_count=50
)
