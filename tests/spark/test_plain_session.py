"""A session that somebody else built finds the data source by itself."""

import os
import pkgutil
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from bench.workloads.java import find_java, wrap_java
from logstore import Broker

SCRIPT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("logstore").load(sys.argv[1]).count())
"""


def test_an_installed_package_shows_the_source_to_spark():
    """An editable install, too, must put a plain path on `sys.path`."""
    names = [each.name for each in pkgutil.iter_modules() if each.name.startswith("pyspark_")]
    assert "pyspark_logstore" in names
    from pyspark_logstore import DefaultSource

    assert DefaultSource.name() == "logstore"


@pytest.mark.slow
def test_a_plain_session_reads_a_data_directory(tmp_path):
    with Broker(tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.append_many("t", [(b"k", b"v")] * 7)
    environ = {
        **os.environ,
        "JAVA_HOME": str(wrap_java(find_java(), tmp_path / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environ.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
        check=False,
        capture_output=True,
        text=True,
        env=environ,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        timeout=240,
    )
    assert done.stdout == "7\n", done.stderr
