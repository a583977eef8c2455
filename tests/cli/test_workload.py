"""`logstore workload` up to the point where Spark starts."""

import importlib.util
import os

import click
import pytest

from logstore.errors import InvalidConfigurationError
from logstore.spark.commands.generate import load_spec
from logstore.spark.commands.workload import (
    SparkOptions,
    _heap,
    default_heap,
    logstore_error_in,
    missing_module,
)


@pytest.fixture
def no_spark(monkeypatch):
    """Check that refusals come before any Java starts."""

    def session(*_):
        raise AssertionError("Spark starts")

    monkeypatch.setattr(SparkOptions, "session", session)


def test_the_command_is_listed_with_its_help(run):
    assert "\n  workload        Generate keyed workloads" in run("--help").stdout
    text = run("workload", "--help").stdout
    assert all(f"\n  {name} " in text for name in ("generate", "verify", "run"))


def test_a_directory_named_like_a_preset_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdc-table").mkdir()
    assert load_spec("cdc-table", ()).topic == "cdc-table"


def test_a_workload_is_a_file_or_a_preset_with_values_laid_over_it(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('topic = "own"\nrecords = 5\n[keys]\ncount = 3\n')
    spec = load_spec(str(file), ("keys.count=4", "seed = 9", "keys.prefix=k-", "records=7"))
    assert (spec.topic, spec.records, spec.seed) == ("own", 7, 9)
    assert (spec.keys.count, spec.keys.prefix) == (4, "k-")
    assert load_spec("cdc-table", ()).topic == "cdc-table"
    spec = load_spec("cdc-table", ("configs.segment.bytes=10000000",))
    assert spec.configs["segment.bytes"] == "10000000"


@pytest.mark.parametrize(
    ("given", "text"),
    (
        (("no-such",), "'no-such' is neither a file nor a preset"),
        (("cdc-table", "--set", "records"), "--set 'records' is not KEY=VALUE"),
        (("cdc-table", "--set", "records.x=1"), "records must be an integer"),
        (("cdc-table", "--set", "keys.cuont=1"), "unknown key keys.cuont; the nearest is 'count'"),
        (("cdc-table", "--set", "records=0"), "records 0 is below 1"),
        (("cdc-table", "--set", "configs.segment.byte=1"), "segment.byte"),
        (("cdc-table", "--config", "segment.byte=1"), "segment.byte"),
        (("cdc-table", "--parquet", "p", "--no-parquet"), "mutually exclusive"),
        (("cdc-table", "--data-dir", "a", "--data-dir", "b"), "written to one data directory"),
        (("cdc-table", "--driver-memory", "abc"), "'abc' is not a size"),
        (("cdc-table", "--driver-memory", "100m"), "below the minimum of 512m"),
        (("cdc-table", "--master", "bogus"), "'bogus' is not one of local"),
        (("cdc-table", "--set", "preset=['a']"), "unknown preset ['a']"),
        (("cdc-table", "--set", "topic=a/b"), "topic name 'a/b'"),
        (
            ("cdc-table", "--set", "values.min_bytes=1000000", "--set", "values.max_bytes=1000000"),
            "bytes on average",
        ),
    ),
)
def test_specs_that_cannot_be_generated_are_refused_at_once(run, no_spark, data_dir, given, text):
    refused = run("workload", "generate", *given, code=2)
    assert text in refused.stderr
    assert not data_dir.exists()


@pytest.mark.parametrize(
    ("given", "text"),
    (
        ((), "Missing option '--before'"),
        (("--before", "a"), "Missing option '--after'"),
        (("--before", "a", "--after", "b", "--partition", "0"), "--partition requires --topic"),
        (("--before", "a", "--after", "b", "--since", "0"), "--since requires --now"),
        (("--before", "a", "--after", "b", "--strategy", "key"), "is not one of"),
    ),
)
def test_directories_that_cannot_be_verified_are_refused_at_once(run, no_spark, given, text):
    assert text in run("workload", "verify", *given, code=2).stderr


def test_a_run_does_not_overwrite_existing_files(run, no_spark, tmp_path):
    (tmp_path / "after").mkdir()
    refused = run("workload", "run", "cdc-table", "--out", tmp_path, code=2)
    assert f"{tmp_path}/after already exists" in refused.stderr


def test_without_pyspark_the_message_names_the_extra(run, monkeypatch, data_dir):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name)
    )
    refused = run("workload", "generate", "cdc-table", code=2)
    assert "pip install 'kafka-logstore[spark]'" in refused.stderr
    assert not data_dir.exists()


def test_spark_runs_locally_by_default(monkeypatch):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert SparkOptions(None, "1g").is_local
    assert SparkOptions("local[2]", "1g").is_local
    assert not SparkOptions("spark://127.0.0.1:7077", "1g").is_local
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not SparkOptions(None, "1g").is_local


@pytest.mark.parametrize(("gib", "heap"), ((2, "1g"), (16, "4g"), (512, "6g")))
def test_the_heap_follows_the_memory_of_the_machine(monkeypatch, gib, heap):
    values = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (gib << 30) // 4096}
    monkeypatch.setattr(os, "sysconf", values.__getitem__)
    assert default_heap() == heap


def test_an_engine_error_is_extracted_from_sparks_task_failure():
    text = (
        "Job aborted\nTraceback (most recent call last):\n  File ...\n"
        "logstore.errors.InvalidConfigurationError: unknown key x\n\n\tat org.apache.spark"
    )
    found = logstore_error_in(text)
    assert str(found) == "unknown key x"
    assert found.exit_code == 2
    assert found.kafka_error == InvalidConfigurationError.kafka_error
    assert logstore_error_in("ValueError: x") is None
    assert logstore_error_in("logstore.errors.NoSuchError: x") is None


def test_a_module_that_workers_lack_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    found = missing_module("Traceback:\nModuleNotFoundError: No module named 'bench'\n\n\tat org")
    assert str(found) == (
        "Spark's workers run /opt/python, which has no module bench: set PYSPARK_PYTHON to a "
        "Python in which kafka-logstore is installed on every node"
    )
    assert found.exit_code == 2
    assert missing_module("KeyError: No module named 'bench'") is None


@pytest.mark.parametrize("size", ("512m", "513m", "1g", "2T"))
def test_sizes_of_a_heap(size):
    assert _heap(None, None, size) == size


def test_a_heap_below_the_minimum_is_refused():
    with pytest.raises(click.BadParameter, match=r"^511m is below the minimum of 512m$"):
        _heap(None, None, "511m")
