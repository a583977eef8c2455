"""A session of pyspark alone finds the data source."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from logstore import Broker
from logstore.spark.sessions.java import find_java, wrap_java

SCRIPT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("logstore").load(sys.argv[1]).count())
"""


LOOKUP = """
import pkgutil
print([each.name for each in pkgutil.iter_modules() if each.name.startswith("pyspark_")])
from pyspark_logstore import DefaultSource
print(DefaultSource.name())
"""


def run(script, *arguments, folder, **environ):
    """Run a script as Spark's processes run: in a folder of no meaning, and no path added."""
    environ = {**os.environ, **environ}
    environ.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_package_shows_the_source_to_spark(tmp_path):
    """An editable install, too, must put a plain path on `sys.path`.

    Spark looks for packages of this prefix, and takes their `DefaultSource`.
    """
    assert run(LOOKUP, folder=tmp_path) == "['pyspark_logstore']\nlogstore\n"


@pytest.mark.long
def test_a_plain_session_reads_a_data_directory(tmp_path):
    with Broker(tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.append_many("t", [(b"k", b"v")] * 7)
    counted = run(
        SCRIPT,
        str(tmp_path / "data"),
        folder=tmp_path,
        JAVA_HOME=str(wrap_java(find_java(), tmp_path / "java")),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    assert counted == "7\n"
