"""Records that a producer sends one by one: the same bytes and outcomes as through a batch."""

import pytest

from logstore import Broker, KafkaStorageError, VirtualClock
from logstore.clients.accumulator import RecordAccumulator
from logstore.clients.futures import StoredRecord

RECORDS = [
    (b"%d" % (number % 7) if number % 3 else None, b"v" * (number * 13 % 300))
    for number in range(200)
]


def bytes_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "meta.properties" not in path.name
    }


def story(folder, topic_configs, producer_configs):
    outcomes = []
    clock = VirtualClock()
    with Broker(folder, clock=clock, seed=3) as broker:
        broker.create_topic("t", 2, topic_configs)
        with broker.producer(**producer_configs) as producer:
            for number, (key, value) in enumerate(RECORDS):
                headers = [("n", b"%d" % number), ("é", b"")] if number % 5 == 0 else None
                future = producer.send("t", value, key, headers=headers)
                assert future.is_done
                outcomes.append((future.value, str(future.exception), future.succeeded()))
                clock.advance(ms=number)
            outcomes.append(producer.metrics(raw=True))
            states = [broker.manager.log(tp).producer_state for tp in broker.partitions("t")]
            outcomes += [(state.entries(), state.map_end_offset) for state in states]
    return outcomes, bytes_of(folder)


@pytest.mark.parametrize("idempotent", (True, False))
@pytest.mark.parametrize(
    "topic_configs",
    (
        {},
        {"segment.bytes": "2000", "index.interval.bytes": "300"},
        {"message.timestamp.type": "LogAppendTime"},
        {"compression.type": "lz4"},
        {"cleanup.policy": "compact"},
        {"max.message.bytes": "250"},
        {"segment.ms": "4000"},
    ),
    ids=str,
)
def test_the_same_bytes_and_outcomes_as_through_a_batch(
    tmp_path, monkeypatch, topic_configs, idempotent
):
    configs = {"enable_idempotence": idempotent}
    alone = story(tmp_path / "alone", topic_configs, configs)
    monkeypatch.setattr(RecordAccumulator, "_send_alone", lambda *_: None)
    batched = story(tmp_path / "batched", topic_configs, configs)
    assert alone == batched


def test_most_records_need_no_batch():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        with broker.producer() as producer:
            futures = [producer.send("t", b"v", b"k") for _ in range(100)]
    # The first batch of a producer in a partition has nothing to follow.
    assert [type(future) is StoredRecord for future in futures] == [False] + [True] * 99
    seen = []
    assert futures[5].add_callback(seen.append).add_errback(seen.append) is futures[5]
    assert futures[5].add_both(lambda tag, found: seen.append((tag, found)), "b") is futures[5]
    assert seen == [futures[5].get(), ("b", futures[5].get())]
    assert not futures[5].failed()
    assert not futures[5].retriable()


def test_a_failed_write_fails_the_future():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        with broker.producer() as producer:
            for _ in range(3):
                producer.send("t", b"v")
            writer = broker.manager.log(broker.partitions("t")[0]).writer
            writer.append_next = refuse_to_write
            future = producer.send("t", b"v")
            assert isinstance(future.exception, KafkaStorageError)
            with pytest.raises(KafkaStorageError, match="no space"):
                future.get()
            assert producer.metrics(raw=True)["record-error-total"] == 1
            del writer.append_next
            assert producer.send("t", b"v").get().offset == 3


def refuse_to_write(*_):
    raise KafkaStorageError("no space")


def test_an_interrupted_send_does_not_reuse_its_sequence():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        with broker.producer() as producer:
            for _ in range(3):
                producer.send("t", b"v")
            log = broker.manager.log(broker.partitions("t")[0])
            original = log.writer.append_next

            def interrupted(*arguments):
                original(*arguments)
                raise KeyboardInterrupt

            log.writer.append_next = interrupted
            with pytest.raises(KeyboardInterrupt):
                producer.send("t", b"v")
            del log.writer.append_next
            assert producer.send("t", b"v").get().offset == 4
            epochs = [batch.header.producer_epoch for batch in batches_of(log)]
    assert epochs == [0, 0, 0, 0, 1]


def batches_of(log):
    return [at for segment in log.segments for at in segment.batches()]


def test_a_send_inside_a_send_waits_for_it():
    """A listener of the log sends with the producer whose record is being appended."""
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        broker.create_topic("u")
        with broker.producer() as producer:
            producer.send("t", b"0")
            producer.send("u", b"0")
            log = broker.manager.log(broker.partitions("t")[0])
            inner = []

            def send_once():
                if not inner:
                    inner.append(producer.send("u", b"inner"))

            leave = log.subscribe(send_once)
            outer = producer.send("t", b"outer")
            leave()
            assert outer.get().offset == 1
            assert inner[0].is_done
            assert inner[0].get().offset == 1
