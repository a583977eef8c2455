"""Recognizing data directories, partitions and a cluster's directory by the names in them."""

import pytest

from logstore.errors import InvalidConfigurationError
from logstore.inspect.check import Checker
from logstore.manager.directories.nesting import (
    DATA_DIRECTORY_FILES,
    check_cluster_directory,
    check_data_directory,
    check_no_cluster,
    find_nested,
    is_cluster_directory,
    is_data_directory,
)
from logstore.names import CLUSTER_FILE, CONTROLLER_DIR
from logstore.runtime import MemoryFileSystem, VirtualClock

LOG, INDEX = "00000000000000000000.log", "00000000000000000000.index"
META = "meta.properties"


def disk(*files):
    """Return a file system with some empty files; names that end in a slash are folders."""
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/d")
    for name in files:
        folder = f"/d/{name}".rpartition("/")[0]
        fs.make_dirs(folder)
        if not name.endswith("/"):
            fs.open(f"/d/{name}", create=True).close()
    return fs


@pytest.mark.parametrize("name", sorted(DATA_DIRECTORY_FILES))
def test_each_file_of_a_data_directory_makes_it_one(name):
    assert is_data_directory(disk(name), "/d")
    assert find_nested(disk(f"t-0/{name}"), "/d") == ["t-0"]


@pytest.mark.parametrize(
    ("files", "is_one"),
    (
        ((), False),
        (("t-0/",), False),
        ((LOG,), False),
        ((META,), True),
        ((META, LOG), False),  # a partition's folder that was opened by mistake
        ((META, LOG, "t-0/"), True),
        ((META, LOG, "t-0"), False),  # a file
        ((META, LOG, "notes/"), False),
    ),
)
def test_a_data_directory_has_its_files_and_is_not_a_partition(files, is_one):
    assert is_data_directory(disk(*files), "/d") is is_one


@pytest.mark.parametrize(
    ("files", "nested"),
    (
        ((f"t-0/{META}", f"u-1/{META}"), ["t-0", "u-1"]),
        ((f"t-0/{META}", f"u-1/{LOG}"), ["t-0"]),
        ((f"notes/{META}",), []),
        (("t-0",), []),
        # Only a directory that no broker opened for writing is searched.
        ((META, f"t-0/{META}"), []),
        (("recovery-point-offset-checkpoint", f"t-0/{META}"), []),
        ((".lock", f"t-0/{META}"), ["t-0"]),
        # The controller's file marks it as a cluster's, whatever its contents.
        (
            (f"{CONTROLLER_DIR}/{CLUSTER_FILE}", "broker-0/", "broker-12/"),
            ["broker-0", "broker-12"],
        ),
        (
            (f"{CONTROLLER_DIR}/{CLUSTER_FILE}", META, f"t-0/{META}", "broker-0/"),
            ["broker-0", "t-0"],
        ),
        ((f"{CONTROLLER_DIR}/{CLUSTER_FILE}", "broker-x/", "old-broker-0/"), []),
        (("broker-0/",), []),
    ),
)
def test_nested_data_directories_are_found_by_name_and_files(files, nested):
    assert sorted(find_nested(disk(*files), "/d")) == nested


@pytest.mark.parametrize(
    ("files", "brokers"),
    (
        ((f"{CONTROLLER_DIR}/{CLUSTER_FILE}", "broker-0/", "broker-2/"), 3),
        ((f"{CONTROLLER_DIR}/{CLUSTER_FILE}",), 1),
        ((f"{CONTROLLER_DIR}/", f"broker-0/{META}", f"broker-1/{META}"), 2),
    ),
)
def test_a_clusters_directory_is_refused_with_the_number_of_its_brokers(files, brokers):
    fs = disk(*files)
    with pytest.raises(InvalidConfigurationError, match=f"--brokers {brokers} "):
        check_no_cluster(fs, "/d", find_nested(fs, "/d"))
    with pytest.raises(InvalidConfigurationError, match="directory of a cluster"):
        check_data_directory(fs, "/d")


@pytest.mark.parametrize(
    "files",
    (
        (f"broker-0/{META}",),  # without the controller's folder
        (f"{CONTROLLER_DIR}/", f"broker-0/{META}", f"t-0/{META}"),
        (f"{CONTROLLER_DIR}/",),
        (f"{CONTROLLER_DIR}/", f"t-0/{META}"),
    ),
)
def test_a_directory_that_only_resembles_a_cluster_is_not_one(files):
    fs = disk(*files)
    nested = find_nested(fs, "/d")
    check_no_cluster(fs, "/d", nested)
    assert not is_cluster_directory(fs, "/d")
    if nested:
        with pytest.raises(InvalidConfigurationError, match=f"--data-dir /d/{nested[0]}"):
            check_data_directory(fs, "/d")
    else:
        check_data_directory(fs, "/d")


@pytest.mark.parametrize(
    ("files", "named"),
    (
        ((META,), META),
        ((f"t-0/{LOG}",), "t-0"),
        ((f"{CONTROLLER_DIR}/{CLUSTER_FILE}", META), None),
        (("t-0/",), None),
        ((f"t-0/{META}",), None),
        ((f"t-0/{META}", f"t-0/{LOG}"), "t-0"),
        ((f"notes/{LOG}",), None),
        ((), None),
    ),
)
def test_a_cluster_refuses_the_directory_of_one_broker(files, named):
    fs = disk(*files)
    if named is None:
        check_cluster_directory(fs, "/d")
    else:
        with pytest.raises(InvalidConfigurationError, match=f"since it has {named}:"):
            check_cluster_directory(fs, "/d")
    check_cluster_directory(fs, "/elsewhere")


def test_bytes_of_logs_are_counted_below_directories_and_of_a_file():
    fs = disk(f"t-0/{INDEX}", f"t-0/{LOG}", f"deep/t-1/{LOG}", LOG)
    for name, size in (
        (f"t-0/{INDEX}", 7),
        (f"t-0/{LOG}", 10),
        (f"deep/t-1/{LOG}", 200),
        (LOG, 3000),
    ):
        file = fs.open(f"/d/{name}", write=True)
        file.append([bytes(size)])
        file.close()
    checker = Checker(fs)
    assert checker.log_bytes(["/d"]) == 3210
    assert checker.log_bytes(["/d/deep", "/d/t-0"]) == 210
    assert checker.log_bytes([f"/d/{LOG}"]) == 3000
    assert checker.log_bytes([f"/d/t-0/{INDEX}", "/d/missing"]) == 0
