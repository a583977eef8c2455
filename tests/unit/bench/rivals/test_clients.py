"""The clients and this engine code the same records the same way."""

import pytest

from logstore.bench.micro.coding import (
    RECORDS,
    TIMESTAMP_MS,
    columns_of,
    decode_with_logstore,
    encode_with_logstore,
)
from logstore.bench.rivals.clients import clients
from logstore.record.batch import RecordBatch

CLIENTS = {client.name.partition(" ")[0]: client for client in clients()}


def test_both_clients_are_installed_with_the_development_tools():
    assert set(CLIENTS) == {"aiokafka", "kafka-python"}


@pytest.fixture(scope="module")
def batch():
    return encode_with_logstore(*columns_of(RECORDS))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_reads_the_batch_of_the_columns(name, batch):
    assert CLIENTS[name].decode(batch) == decode_with_logstore(batch) == len(RECORDS)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_columns_read_the_batch_of_a_client(name):
    batch = RecordBatch(CLIENTS[name].encode(RECORDS, TIMESTAMP_MS))
    batch.ensure_valid()
    found = [(record.key, record.value) for record in batch.records()]
    assert found == list(RECORDS)
    assert {record.timestamp for record in batch.records()} == {TIMESTAMP_MS}
