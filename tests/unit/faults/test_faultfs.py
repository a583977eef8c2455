"""FaultyFileSystem: the shared suite, then what crashes and failures leave."""

import errno
from contextlib import closing

import pytest

from logstore.faults import crash
from logstore.runtime import MemoryFileSystem, SystemClock, VirtualClock
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    SimulatedCrash,
)
from tests.support.world.fs_suite import FileSystemSuite, Place, write_file

KEPT = CrashMode(Contents.KEPT, Names.KEPT)
NAMES_KEPT = CrashMode(Contents.DROPPED, Names.KEPT)


class TestFaultyFileSystem(FileSystemSuite):
    @pytest.fixture
    def place(self):
        fs = FaultyFileSystem()
        fs.make_dirs("/data")
        return Place(fs, "/data", lambda path, data: write_file(fs, path, data))


class TestFaultyFileSystemOverAnImage(FileSystemSuite):
    @pytest.fixture
    def place(self):
        fs = FaultyFileSystem()
        fs.make_dirs("data/dir")
        write_file(fs, "data/dir/.there", b"x")
        copy = FaultyFileSystem(image=fs.crash(KEPT))
        copy.remove("data/dir/.there")
        return Place(copy, "data/dir", lambda path, data: write_file(copy, path, data))


@pytest.fixture
def fs():
    """A directory with one file `a`, all durable."""
    fs = FaultyFileSystem(VirtualClock())
    fs.make_dirs("/data")
    write_file(fs, "/data/a", b"0123456789")
    return FaultyFileSystem(VirtualClock(), fs.crash(KEPT))


def read(fs, path):
    file = fs.open(path)
    try:
        return file.read(0, 10_000)
    finally:
        file.close()


def after(fs, mode, path="/data/a"):
    return read(fs.crash(mode), path)


# --- contents -----------------------------------------------------------------------------------


def test_unsynced_data_is_dropped_or_kept(fs):
    file = fs.open("/data/a", write=True)
    file.append([b"AB", b"CD"])
    assert after(fs, CrashMode()) == b"0123456789"
    assert after(fs, KEPT) == b"0123456789ABCD"
    file.sync()
    file.write_at([b"xy"], 0)
    assert after(fs, CrashMode()) == b"0123456789ABCD"
    assert read(fs, "/data/a") == b"xy23456789ABCD"


def test_torn_contents_end_at_any_byte_in_the_order_of_writing_over_all_files(fs):
    first, second = fs.open("/data/a", write=True), fs.open("/data/b", create=True)
    second.append([b"uv"])
    first.truncate(3)
    first.append([b"XY"])
    second.append([b"w"])
    seen = [
        (read(image, "/data/a"), read(image, "/data/b"))
        for cut in range(fs.pending_units + 1)
        for image in (fs.crash(CrashMode(Contents.TORN, Names.KEPT, cut=cut)),)
    ]
    assert seen == [
        (b"0123456789", b""),
        (b"0123456789", b"u"),
        (b"0123456789", b"uv"),
        (b"012", b"uv"),
        (b"012X", b"uv"),
        (b"012XY", b"uv"),
        (b"012XY", b"uvw"),
    ]


def test_zeroed_contents_have_the_final_length_and_what_was_durable(fs):
    file = fs.open("/data/a", write=True)
    file.write_at([b"ab"], 1)
    file.append([b"xyz"])
    assert after(fs, CrashMode(Contents.ZEROED)) == b"0123456789\0\0\0"
    file.truncate(4)
    file.append([b"u"])
    assert after(fs, CrashMode(Contents.ZEROED)) == b"0123\0"


def test_scattered_contents_are_made_of_old_new_and_new_garbage_and_repeat_by_seed(fs):
    file = fs.open("/data/a", write=True)
    file.append([bytes([1]) * 3000])
    seen = set()
    for seed in range(200):
        mode = CrashMode(Contents.SCATTERED, seed=seed)
        left = after(fs, mode)
        assert left == after(fs, mode)
        assert left.startswith(b"0123456789")
        assert len(left) <= 3010
        seen.add(left)
    assert len(seen) > 50
    assert b"0123456789" in seen
    assert any(len(left) == 3010 and set(left[10:]) == {0, 1} for left in seen)
    assert any(len(set(left[10:])) > 2 for left in seen)


class Draws:
    """A random source whose draws are given."""

    def __init__(self, choice, units=0, chances=()):
        self.choice = choice
        self.units = units
        self.chances = list(chances)

    def randrange(self, end):
        assert end == 6
        return self.choice

    def randint(self, first, last):
        assert (first, last) == (0, 631)
        return self.units

    def random(self):
        return self.chances.pop(0)

    def randbytes(self, size):
        return b"?" * size


OLD = b"0" * 600
SOME, OTHERS = (0.49, 0.5, 0.0, 0.9), (0.5, 0.49, 0.9, 0.0)
SCATTERED = {
    "old": (Draws(0), OLD),
    "new": (Draws(1), b"0" * 400 + b"a" * 600 + bytes(20) + b"b" * 30),
    "zeros": (Draws(2), b"0" * 512 + bytes(538)),
    "no unit": (Draws(3, units=0), OLD),
    "the truncation": (Draws(3, units=1), b"0" * 512),
    "some bytes": (Draws(3, units=3), b"0" * 400 + b"aa" + b"0" * 110),
    "all": (Draws(3, units=631), b"0" * 400 + b"a" * 600 + bytes(20) + b"b" * 30),
    "some sectors": (
        Draws(4, chances=SOME),
        b"0" * 400 + b"a" * 112 + bytes(508) + b"b" * 4 + bytes(26),
    ),
    "other sectors": (
        Draws(4, chances=OTHERS),
        b"0" * 512 + b"a" * 488 + bytes(24) + b"b" * 26,
    ),
    "some sectors and garbage": (
        Draws(5, chances=SOME),
        b"0" * 400 + b"a" * 112 + b"?" * 488 + bytes(20) + b"b" * 4 + b"?" * 26,
    ),
    "other sectors and garbage": (
        Draws(5, chances=OTHERS),
        b"0" * 512 + b"a" * 488 + bytes(20) + b"?" * 4 + b"b" * 26,
    ),
}


@pytest.mark.parametrize("name", SCATTERED)
def test_each_way_to_scatter_contents(monkeypatch, name):
    draws, expected = SCATTERED[name]
    monkeypatch.setattr(crash, "random_source", lambda _: draws)
    image = MemoryFileSystem(VirtualClock())
    write_file(image, "a", OLD)
    fs = FaultyFileSystem(VirtualClock(), image)
    file = fs.open("a", write=True)
    file.truncate(512)
    file.write_at([b"a" * 600], 400)
    file.write_at([b"b" * 30], 1020)
    assert fs.pending_units == 631
    assert after(fs, CrashMode(Contents.SCATTERED), "a") == expected
    assert draws.chances == []


@pytest.mark.parametrize(
    ("mode", "text"),
    (
        (CrashMode(), "contents dropped, names undone"),
        (CrashMode(Contents.TORN, Names.KEPT, cut=7), "contents torn at 7, names kept"),
        (
            CrashMode(Contents.ZEROED, Names.PREFIX, cut=7, names_kept=3),
            "contents zeroed, names prefix of 3",
        ),
        (CrashMode(Contents.SCATTERED, seed=5), "contents scattered, names undone, seed 5"),
        (CrashMode(Contents.KEPT, Names.SUBSET, seed=6), "contents kept, names subset, seed 6"),
    ),
)
def test_the_text_of_a_mode_has_what_it_uses(mode, text):
    assert str(mode) == text


def test_sizes_from_truncation_are_pending_too(fs):
    file = fs.open("/data/a", write=True)
    file.truncate(20)
    assert after(fs, CrashMode()) == b"0123456789"
    file.sync()
    assert after(fs, CrashMode()) == b"0123456789" + bytes(10)


def test_an_image_does_not_change_with_the_file_system(fs):
    file = fs.open("/data/a", write=True)
    image = fs.crash(KEPT)
    file.write_at([b"zz"], 0)
    assert read(image, "/data/a") == b"0123456789"
    other = image.open("/data/a", write=True)
    other.truncate(0)
    assert read(fs, "/data/a") == b"zz23456789"


# --- names --------------------------------------------------------------------------------------


def test_a_name_lasts_when_its_directory_is_synced_not_when_its_file_is(fs):
    file = fs.open("/data/b", create=True)
    file.append([b"b"])
    file.sync()
    assert not fs.crash().exists("/data/b")
    assert fs.crash(NAMES_KEPT).exists("/data/b")
    fs.sync_dir("/data")
    assert after(fs, CrashMode(), "/data/b") == b"b"


def test_contents_do_not_last_when_only_the_directory_is_synced(fs):
    write_file(fs, "/data/b", b"b")
    fs.sync_dir("/data")
    assert after(fs, CrashMode(), "/data/b") == b""


def test_a_directory_and_its_files_hang_on_the_directory_above(fs):
    fs.make_dirs("/data/t-0")
    write_file(fs, "/data/t-0/x", b"")
    fs.sync_dir("/data/t-0")
    assert fs.crash().list_dir("/data") == ["a"]
    fs.sync_dir("/data")
    assert fs.crash().exists("/data/t-0/x")


def test_a_rename_is_undone_or_kept_as_a_whole(fs):
    write_file(fs, "/data/b", b"b")
    fs.open("/data/b", write=True).sync()
    fs.sync_dir("/data")
    fs.rename("/data/b", "/data/a")
    assert fs.crash().list_dir("/data") == ["a", "b"]
    assert after(fs, CrashMode()) == b"0123456789"
    assert fs.crash(NAMES_KEPT).list_dir("/data") == ["a"]
    assert after(fs, NAMES_KEPT) == b"b"


def test_a_rename_across_directories_is_whole_once_either_is_synced(fs):
    for synced in ("/data/one", "/data/two"):
        fs.make_dirs("/data/one")
        fs.make_dirs("/data/two")
        fs.sync_dir("/data")
        write_file(fs, "/data/one/x", b"")
        fs.rename("/data/one/x", "/data/two/y")
        fs.sync_dir(synced)
        image = fs.crash()
        assert (image.list_dir("/data/one"), image.list_dir("/data/two")) == ([], ["y"])
        fs.remove("/data/two/y")


def test_names_are_kept_up_to_any_operation(fs):
    write_file(fs, "/data/b", b"")
    fs.rename("/data/a", "/data/c")
    fs.remove("/data/b")
    assert fs.pending_names == 3
    seen = [
        fs.crash(CrashMode(names=Names.PREFIX, names_kept=kept)).list_dir("/data")
        for kept in range(4)
    ]
    assert seen == [["a"], ["a", "b"], ["b", "c"], ["c"]]


def test_a_subset_of_names_keeps_the_order_of_what_happened_to_one_name(fs):
    write_file(fs, "/data/b", b"")
    write_file(fs, "/data/x", b"")
    fs.rename("/data/b", "/data/c")
    fs.remove("/data/a")
    seen = {
        tuple(fs.crash(CrashMode(names=Names.SUBSET, seed=seed)).list_dir("/data"))
        for seed in range(200)
    }
    of_b = [(), ("b",), ("c",)]
    expected = {
        tuple(sorted((*a, *b, *x))) for a in ((), ("a",)) for b in of_b for x in ((), ("x",))
    }
    assert seen == expected


def test_a_directory_keeps_its_files_through_a_rename(fs):
    fs.make_dirs("/data/t-0")
    fs.sync_dir("/data")
    file = fs.open("/data/t-0/x", create=True)
    fs.sync_dir("/data/t-0")
    fs.rename("/data/t-0", "/data/t-0-delete")
    file.append([b"late"])
    file.sync()
    assert fs.operations[-1].path == "/data/t-0-delete/x"
    assert after(fs, CrashMode(), "/data/t-0/x") == b"late"
    assert after(fs, NAMES_KEPT, "/data/t-0-delete/x") == b"late"


# --- crashes ------------------------------------------------------------------------------------


def story(fs):
    fs.make_dirs("/data/x")
    file = fs.open("/data/x/b", create=True)
    file.append([b"one"])
    file.truncate(2)
    file.sync()
    fs.set_mtime("/data/x/b", 5)
    fs.rename("/data/x/b", "/data/c")
    fs.remove("/data/a")
    fs.remove_dir("/data/x")
    fs.sync_dir("/data")


STORY = [
    (1, Kind.MAKE_DIR, "/data/x", 0, ""),
    (2, Kind.CREATE, "/data/x/b", 0, ""),
    (3, Kind.WRITE, "/data/x/b", 3, ""),
    (4, Kind.TRUNCATE, "/data/x/b", 2, ""),
    (5, Kind.SYNC, "/data/x/b", 0, ""),
    (6, Kind.SET_MTIME, "/data/x/b", 0, ""),
    (7, Kind.RENAME, "/data/x/b", 0, "/data/c"),
    (8, Kind.REMOVE, "/data/a", 0, ""),
    (9, Kind.REMOVE_DIR, "/data/x", 0, ""),
    (10, Kind.SYNC_DIR, "/data", 0, ""),
]


def tree(image):
    """Return contents and time of each file, and None for each folder."""
    return {path: each and (each.read(0, each.size), each.mtime_ms) for path, each in image.walk()}


def test_operations_are_recorded(fs):
    story(fs)
    assert fs.operations == STORY
    assert fs.operation_count == 10
    assert fs.crash().list_dir("/data") == ["c"]
    assert after(fs, CrashMode(), "/data/c") == b"on"


@pytest.mark.parametrize("number", range(1, 11))
def test_a_crash_occurs_in_the_middle_of_the_chosen_operation(fs, number):
    before = tree(fs.crash())
    fs.crash_at(number)
    with pytest.raises(SimulatedCrash) as caught:
        story(fs)
    assert fs.crashed
    assert fs.operations == STORY[:number]
    assert str(caught.value) == str(fs.operations[-1])
    assert tree(fs.crash()) == before
    kept = [path for path in tree(fs.crash(KEPT)) if path not in ("/", "/data")]
    assert kept == [
        *(["/data/a"] if number < 8 else []),
        *(["/data/c"] if number > 6 else []),
        *(["/data/x"] if number < 9 else []),
        *(["/data/x/b"] if 1 < number < 7 else []),
    ]


FOLDERS = (
    lambda fs: fs.remove("/data/p/d/f"),
    lambda fs: fs.remove_dir("/data/p/d"),
    lambda fs: fs.remove("/data/p/e/g"),
    lambda fs: fs.remove_dir("/data/p/e"),
    lambda fs: fs.make_dirs("/data/p/new"),
    lambda fs: write_file(fs, "/data/p/new/h", b"new"),
    lambda fs: fs.rename("/data/p", "/data/q"),
    lambda fs: fs.remove("/data/r/z"),
    lambda fs: fs.rename("/data/o", "/data/r"),
    lambda fs: fs.make_dirs("/data/r/late"),
    lambda fs: fs.rename("/data/r", "/data/q/r"),
    lambda fs: fs.make_dirs("/data/p"),
    lambda fs: write_file(fs, "/data/p/d", b"a file now"),
)


@pytest.fixture
def folders():
    """Folders with a durable file each."""
    base = MemoryFileSystem(VirtualClock(1_000))
    for name in ("a", "p/d/f", "p/e/g", "o/i", "r/z"):
        base.make_dirs(f"/data/{name.rpartition('/')[0]}")
        write_file(base, f"/data/{name}", name.encode())
    return FaultyFileSystem(VirtualClock(2_000), base)


def test_names_kept_up_to_each_change_of_folders_leave_the_tree_of_that_time(folders):
    trees = [tree(folders.base)]
    for change in FOLDERS:
        change(folders)
        trees.append(tree(folders.base))
    assert [
        tree(folders.crash(CrashMode(Contents.KEPT, Names.PREFIX, names_kept=kept)))
        for kept in range(len(trees))
    ] == trees


def test_a_removed_folder_returns_where_its_durable_parent_is(folders):
    before = tree(folders.base)
    for change in FOLDERS[:4]:
        change(folders)
    folders.rename("/data/p", "/data/q")
    folders.make_dirs("/data/q/new")
    folders.sync_dir("/data")
    assert tree(folders.crash()) == {
        path.replace("/p", "/q"): each for path, each in before.items()
    }


def test_contents_of_a_replaced_file_are_not_of_its_successor(folders):
    """Also if the successor was never opened."""
    with closing(folders.open("/data/a", write=True)) as file:
        file.append([b" and not"])
    before = tree(folders.base)["/data/p/d/f"]
    folders.rename("/data/p/d/f", "/data/a")
    folders.sync_dir("/data")
    assert tree(folders.crash())["/data/a"] == before


def test_nothing_can_be_done_after_the_crash_and_no_except_clause_catches_it(fs):
    handle = fs.open("/data/a", write=True)
    fs.crash_at(1)

    def remove():
        try:
            fs.remove("/data/a")
        except Exception:
            pytest.fail("caught by accident")

    with pytest.raises(SimulatedCrash):
        remove()
    for use in (
        lambda: handle.read(0, 1),
        lambda: handle.append([b"x"]),
        lambda: handle.size(),
        lambda: handle.sync(),
        lambda: fs.list_dir("/data"),
        lambda: fs.exists("/data/a"),
        lambda: fs.open("/data/a"),
        lambda: fs.sync_dir("/data"),
    ):
        with pytest.raises(SimulatedCrash):
            use()
    handle.close()


# --- failures -----------------------------------------------------------------------------------


def test_a_chosen_operation_fails_once_and_changes_nothing(fs):
    fault = fs.fail("remove", suffix="b", nth=2)
    for name in ("a", "b"):
        write_file(fs, f"/data/1{name}", b"")
        write_file(fs, f"/data/2{name}", b"")
    fs.remove("/data/1a")
    fs.remove("/data/1b")
    with pytest.raises(OSError, match="2b") as raised:
        fs.remove("/data/2b")
    assert raised.value.errno == errno.EIO
    assert fault.hits == 1
    assert fs.exists("/data/2b")
    fs.remove("/data/2b")


def test_a_persistent_failure_lasts_until_it_is_cleared(fs):
    fault = fs.fail("change", error="ENOSPC")
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            fs.rename("/data/a", "/data/b")
    assert read(fs, "/data/a") == b"0123456789"
    assert fault.hits == 3
    with pytest.raises(OSError, match="No space"):
        fs.open("/data/b", create=True)
    fs.faults.clear()
    assert not fs.exists("/data/b")
    fs.rename("/data/a", "/data/b")


def test_a_short_write_leaves_some_bytes_and_fails(fs):
    file = fs.open("/data/a", write=True)
    fs.fail("write", error="ENOSPC", nth=1, written=2)
    with pytest.raises(OSError, match="No space"):
        file.append([b"abc"])
    assert read(fs, "/data/a") == b"0123456789ab"
    assert file.append([b"cd"]) == 12


@pytest.mark.parametrize(
    ("kind", "use"),
    (
        (Kind.READ, lambda fs: read(fs, "/data/a")),
        (Kind.OPEN, lambda fs: fs.open("/data/a")),
        (Kind.STAT, lambda fs: fs.stat("/data/a")),
        (Kind.LIST, lambda fs: fs.list_dir("/data")),
    ),
)
def test_injected_read_failures_are_not_counted(fs, kind, use):
    fs.fail(kind.value, nth=1)
    with pytest.raises(OSError, match="Input/output"):
        use(fs)
    use(fs)
    assert fs.operation_count == 0


def test_data_of_a_failed_sync_is_lost_even_if_the_next_sync_succeeds(fs):
    file = fs.open("/data/a", write=True)
    file.append([b"lost"])
    fs.fail("fsync", nth=1)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert read(fs, "/data/a") == b"0123456789lost"
    file.append([b"!"])
    file.sync()
    assert after(fs, KEPT) == b"0123456789\0\0\0\0!"


def test_a_failed_directory_sync_leaves_the_names_pending(fs):
    fs.remove("/data/a")
    fs.fail("sync_dir", nth=1)
    with pytest.raises(OSError, match="Input/output"):
        fs.sync_dir("/data")
    assert fs.crash().exists("/data/a")
    fs.sync_dir("/data")
    assert not fs.crash().exists("/data/a")


def test_a_failure_without_a_change_is_not_recorded(fs):
    closed = fs.open("/data/a", write=True)
    closed.close()
    for use in (
        lambda: closed.truncate(0),
        lambda: closed.write_at([b"x"], 0),
        lambda: fs.remove("/data/none"),
        lambda: fs.remove("/data"),
        lambda: fs.remove_dir("/data/none"),
        lambda: fs.remove_dir("/data"),
        lambda: fs.open("/none/a", create=True),
        lambda: fs.sync_dir("/none"),
        lambda: fs.set_mtime("/data/none", 1),
        lambda: fs.rename("/data/none", "/data/b"),
        lambda: fs.rename("/data/a", "/none/a"),
        lambda: fs.open("/data/a").append([b"x"]),
        lambda: fs.open("/data/a").truncate(0),
    ):
        with pytest.raises(OSError):
            use()
    assert (fs.operations, fs.pending_units, fs.pending_names) == ([], 0, 0)
    assert repr(fs) == "FaultyFileSystem(0 operations)"


def test_each_kind_of_change_is_recorded(fs):
    fs.make_dirs("/data/x")
    fs.set_mtime("/data/a", 5)
    fs.lock("/data/lock").release()
    file = fs.open("/data/a", write=True)
    file.append([])
    file.append([b"ab", b"c"])
    file.truncate(7)
    fs.remove("/data/a")
    fs.remove_dir("/data/x")
    assert fs.operations == [
        (1, Kind.MAKE_DIR, "/data/x", 0, ""),
        (2, Kind.SET_MTIME, "/data/a", 0, ""),
        (3, Kind.WRITE, "/data/a", 3, ""),
        (4, Kind.TRUNCATE, "/data/a", 7, ""),
        (5, Kind.REMOVE, "/data/a", 0, ""),
        (6, Kind.REMOVE_DIR, "/data/x", 0, ""),
    ]
    assert (fs.pending_units, fs.pending_names) == (4, 3)
    fs.crash_at(7)
    with pytest.raises(SimulatedCrash, match=r"^Operation\(number=7, "):
        fs.make_dirs("/data/y")
    with pytest.raises(SimulatedCrash, match=r"^stat /data/y: after the crash$"):
        fs.exists("/data/y")
    assert repr(fs) == "FaultyFileSystem(7 operations, crashed)"


@pytest.mark.parametrize(
    ("kind", "failing", "others"),
    (
        ("stat", ("exists", "is_dir", "kind", "stat"), ("list_dir", "kinds", "lock", "size")),
        ("list", ("list_dir", "kinds"), ("exists", "is_dir", "kind", "stat", "lock", "size")),
        ("lock", ("lock",), ("exists", "list_dir", "size")),
        ("size", ("size",), ("exists", "list_dir", "read")),
        ("read", ("read", "read_into"), ("exists", "list_dir", "size")),
    ),
)
def test_each_read_fails_by_the_rules_of_its_kind(fs, kind, failing, others):
    file = fs.open("/data/a")
    uses = {
        "exists": lambda: fs.exists("/data/a"),
        "is_dir": lambda: fs.is_dir("/data"),
        "kind": lambda: fs.kind("/data/a"),
        "stat": lambda: fs.stat("/data/a"),
        "list_dir": lambda: fs.list_dir("/data"),
        "kinds": lambda: fs.kinds("/data"),
        "lock": lambda: fs.lock("/data/lock"),
        "size": file.size,
        "read": lambda: file.read(0, 1),
        "read_into": lambda: file.read_into(memoryview(bytearray(1)), 0),
    }
    fault = fs.fail(kind)
    for name in failing:
        with pytest.raises(OSError, match="Input/output"):
            uses[name]()
    for name in others:
        uses[name]()
    assert fault.hits == len(failing)


@pytest.mark.parametrize("suffix", ("a", "b"))
def test_a_suffix_is_of_the_old_or_the_new_path(fs, suffix):
    fault = fs.fail("rename", suffix=suffix, times=1)
    with pytest.raises(OSError, match="Input/output"):
        fs.rename("/data/a", "/data/b")
    fs.rename("/data/a", "/data/c")
    fs.rename("/data/c", "/data/d")
    assert (fault.calls, fault.hits) == (1 if suffix == "b" else 2, 1)


def test_data_of_a_failed_sync_is_lost_in_each_mode(fs):
    file = fs.open("/data/a", write=True)
    file.sync()
    fs.fail("fsync", nth=1)
    file.write_at([b"xy"], 0)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert fs.lost_contents is True
    file.write_at([b"Z"], 1)
    assert fs.pending_units == 1
    assert [
        after(fs, CrashMode(contents, cut=1))
        for contents in Contents
        if contents.value != "scattered"
    ] == [b"0123456789", b"0Z23456789", b"0Z23456789", b"0123456789"]


@pytest.mark.parametrize("image", (None, MemoryFileSystem()))
def test_the_clock_dates_files(image):
    clock = VirtualClock(5_000)
    fs = FaultyFileSystem(clock, image)
    write_file(fs, "a", b"1")
    assert fs.stat("a") == (1, 5_000)
    before_ms = SystemClock().now_ms()
    fs = FaultyFileSystem(image=image)
    write_file(fs, "a", b"1")
    assert before_ms <= fs.stat("a").mtime_ms <= SystemClock().now_ms()


@pytest.mark.parametrize(
    "use",
    (
        lambda fs: fs.rename("/data/a", "/data/b"),
        lambda fs: fs.remove("/data/a"),
        lambda fs: fs.remove_dir("/data/x"),
        lambda fs: fs.sync_dir("/data"),
    ),
)
def test_a_change_of_names_is_recorded_and_made_under_one_lock(fs, use):
    fs.make_dirs("/data/x")
    counts = []

    class Section:
        def __enter__(self):
            counts.append(fs.operation_count)

        def __exit__(self, *_):
            counts.append(fs.operation_count)

    assert fs._serial is fs._lock
    fs._serial = Section()
    use(fs)
    assert counts == [1, 2]
