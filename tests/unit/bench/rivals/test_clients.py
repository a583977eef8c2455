"""The clients and this engine code the same records the same way."""

import numpy as np
import pytest

from logstore.bench.micro.coding import RECORDS, TIMESTAMP_MS, decode_here, encode_here
from logstore.bench.rivals.clients import clients
from logstore.record.batch import RecordBatch
from logstore.record.columns import BytesColumn

CLIENTS = {client.name.partition(" ")[0]: client for client in clients()}


def test_both_clients_are_installed_with_the_development_tools():
    assert set(CLIENTS) == {"aiokafka", "kafka-python"}


@pytest.fixture(scope="module")
def batch():
    keys = BytesColumn.from_list([key for key, _ in RECORDS])
    values = BytesColumn.from_list([value for _, value in RECORDS])
    return encode_here(keys, values, np.full(len(RECORDS), TIMESTAMP_MS))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_reads_the_batch_of_the_columns(name, batch):
    assert CLIENTS[name].decode(batch) == decode_here(batch) == len(RECORDS)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_columns_read_the_batch_of_a_client(name):
    batch = RecordBatch(CLIENTS[name].encode(RECORDS, TIMESTAMP_MS))
    batch.ensure_valid()
    found = [(record.key, record.value) for record in batch.records()]
    assert found == list(RECORDS)
    assert {record.timestamp for record in batch.records()} == {TIMESTAMP_MS}
