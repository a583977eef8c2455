"""The guard of file operations: conversion of `OSError`, and of no other exception."""

import pytest

from logstore.errors import KafkaStorageError
from logstore.runtime.guard import StorageGuard


class Owner:
    def __init__(self):
        self.reasons = []

    def go_offline(self, reason):
        self.reasons.append(reason)


def test_a_failed_file_operation_takes_the_owner_offline():
    owner = Owner()
    with (
        pytest.raises(KafkaStorageError, match=r"^t-0: cannot append: no space$") as error,
        StorageGuard(owner, "t-0", "cannot append"),
    ):
        raise OSError("no space")
    assert owner.reasons == ["cannot append: no space"]
    assert isinstance(error.value.__cause__, OSError)


def test_the_owner_may_receive_more_details_than_the_caller():
    owner = Owner()
    with (
        pytest.raises(KafkaStorageError, match=r"^t-0: cannot open: gone$"),
        StorageGuard(owner, "t-0", "cannot open", "cannot open t-0"),
    ):
        raise FileNotFoundError("gone")
    assert owner.reasons == ["cannot open t-0: gone"]


def test_other_errors_pass():
    owner = Owner()
    for error in (ValueError("wrong"), KafkaStorageError("said already")):
        with pytest.raises(type(error)) as caught, StorageGuard(owner, "t-0", "cannot append"):
            raise error
        assert caught.value is error
    with StorageGuard(owner, "t-0", "cannot append"):
        pass
    assert owner.reasons == []


def test_without_an_owner_nothing_is_taken_offline():
    with (
        pytest.raises(KafkaStorageError, match=r"^/data: cannot read checkpoints: torn$") as error,
        StorageGuard(None, "/data", "cannot read checkpoints"),
    ):
        raise OSError("torn")
    assert isinstance(error.value.__cause__, OSError)
