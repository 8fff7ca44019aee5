"""The kernel cache: what comes out is what was put in or nothing, whatever happened to the folder."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pullback.runtime.cache import entry_format, folder
from pullback.runtime.cache.cache import KernelCache, default_folders, generator_stamp, key
from pullback.runtime.process import counters

NAME = key("a kernel")
PAYLOAD = bytes(range(256)) * 40


def filled(folder: Path) -> Path:
    """Stores PAYLOAD under NAME; the entry's file."""
    KernelCache(folder).put(NAME, PAYLOAD, kind="object", meta={"symbols": ["f"]})
    return folder / NAME[:2] / f"{NAME}.kernel"


def test_key_separates_parts() -> None:
    assert key("ab", "c") != key("a", "bc") != key("abc")
    assert key("ab") == key("ab")
    assert len(key()) == 64


def test_memory_only() -> None:
    store = KernelCache()
    assert store.get(NAME) is None
    store.put(NAME, PAYLOAD, kind="text")
    assert store.find(NAME) == (PAYLOAD, "memory")
    assert store.entries() == [] and store.path is None
    store.discard(NAME)
    assert store.get(NAME) is None


def test_survives_the_process(tmp_path: Path) -> None:
    filled(tmp_path / "c")
    store = KernelCache(tmp_path / "c")
    assert store.find(NAME) == (PAYLOAD, "disk")
    assert store.find(NAME) == (PAYLOAD, "memory")
    (entry,) = store.entries()
    assert (entry.key, entry.kind, entry.size, entry.meta) == (
        NAME,
        "object",
        len(PAYLOAD),
        {"symbols": ["f"]},
    )
    assert store.info()["entries"] == 1
    assert store.verify() == (1, 0, 0)


def test_folder_is_private(tmp_path: Path) -> None:
    file = filled(tmp_path / "c")
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [item.name for item in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("size", [0, 1, 50, 87, 88, 100, len(PAYLOAD)])
def test_truncated_is_a_miss_and_removed(tmp_path: Path, size: int) -> None:
    file = filled(tmp_path)
    file.write_bytes(file.read_bytes()[:size])
    assert KernelCache(tmp_path).get(NAME) is None
    assert not file.exists()


def test_every_flipped_byte_of_the_head_is_a_miss(tmp_path: Path) -> None:
    file = filled(tmp_path)
    good = file.read_bytes()
    for at in [*range(len(good) - len(PAYLOAD)), len(good) - 1, len(good) - 5000]:
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        assert KernelCache(tmp_path).get(NAME) is None, f"byte {at}"
        assert file.exists() == (at in (8, 9)), "of a newer version, as far as one can see"


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x80\x04\x95" * 100, b"pullback" * 50])
def test_foreign_file_is_a_miss_and_replaced(tmp_path: Path, content: bytes) -> None:
    file = filled(tmp_path)
    file.write_bytes(content)
    store = KernelCache(tmp_path)
    assert store.get_or_make(NAME, lambda: b"made", kind="object") == b"made"
    assert KernelCache(tmp_path).get(NAME) == b"made"


def test_an_older_format_is_a_miss_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_format, "FORMAT_VERSION", entry_format.FORMAT_VERSION - 1)
    file = filled(tmp_path)
    monkeypatch.undo()
    assert KernelCache(tmp_path).get(NAME) is None
    assert not file.exists()


def test_a_newer_format_is_a_miss_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_format, "FORMAT_VERSION", entry_format.FORMAT_VERSION + 1)
    file = filled(tmp_path)
    monkeypatch.undo()
    store = KernelCache(tmp_path)
    assert store.get(NAME) is None and store.entries() == []
    assert store.verify() == (0, 0, 1)
    assert file.exists()
    assert store.get_or_make(NAME, lambda: b"made", kind="object") == b"made"
    assert KernelCache(tmp_path).get(NAME) == b"made"


def test_entry_under_another_key_is_a_miss(tmp_path: Path) -> None:
    file = filled(tmp_path)
    other = key("another kernel")
    (tmp_path / other[:2]).mkdir(mode=0o700, exist_ok=True)
    file.rename(tmp_path / other[:2] / f"{other}.kernel")
    assert KernelCache(tmp_path).get(other) is None


def test_symlinked_entry_is_not_followed(tmp_path: Path) -> None:
    file = filled(tmp_path / "c")
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert KernelCache(tmp_path / "c").get(NAME) is None
    assert elsewhere.exists() and not file.is_symlink()


def test_pipe_and_folder_in_place_of_an_entry(tmp_path: Path) -> None:
    file = filled(tmp_path)
    file.unlink()
    os.mkfifo(file)
    assert KernelCache(tmp_path).get(NAME) is None
    assert not file.exists()
    file.mkdir()
    store = KernelCache(tmp_path)
    assert store.get(NAME) is None
    store.put(NAME, PAYLOAD, kind="object")
    assert store.get(NAME) == PAYLOAD
    assert store.info()["problem"] is not None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_folder_that_others_may_write_to_is_refused_once(tmp_path: Path, mode: int) -> None:
    filled(tmp_path / "c")
    (tmp_path / "c").chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users may write"):
        store = KernelCache(tmp_path / "c")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.path is None and store.get(NAME) is None
        store.put(NAME, PAYLOAD, kind="object")
    assert store.get(NAME) == PAYLOAD


def test_subfolder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    file = filled(tmp_path)
    file.parent.chmod(0o777)
    store = KernelCache(tmp_path)
    with pytest.warns(RuntimeWarning, match="other users may write"):
        assert store.get(NAME) is None
    assert store.get(NAME) is None and file.exists()


def test_entry_that_others_may_write_to_is_a_miss(tmp_path: Path) -> None:
    file = filled(tmp_path)
    file.chmod(0o666)
    assert KernelCache(tmp_path).get(NAME) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    file = filled(tmp_path / "c")
    os.chown(file, 12345, 12345)
    assert KernelCache(tmp_path / "c").get(NAME) is None
    os.chown(tmp_path / "c", 12345, 12345)
    with pytest.warns(RuntimeWarning, match="belongs to user 12345"):
        assert KernelCache(tmp_path / "c").path is None
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert KernelCache(tmp_path / "link").path is not None
    os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
    with pytest.warns(RuntimeWarning, match="symbolic link of user"):
        assert KernelCache(tmp_path / "link").path is None


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("x")
    with pytest.warns(RuntimeWarning, match="not a folder"):
        store = KernelCache(tmp_path / "c")
    assert store.get_or_make(NAME, lambda: b"made", kind="text") == b"made"
    below = KernelCache(tmp_path / "c" / "below")
    assert below.path is None
    with pytest.warns(RuntimeWarning, match="in memory alone"):
        below.put(NAME, PAYLOAD, kind="text")
    assert below.get(NAME) == PAYLOAD


@pytest.mark.parametrize("errno", [28, 30, 116, 18, 122])
def test_a_failing_disk_leaves_memory_with_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errno: int) -> None:
    """No space, read-only, a stale handle of a network folder, a rename across devices, a quota."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno, os.strerror(errno))

    store, other = KernelCache(tmp_path), key("another kernel")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(RuntimeWarning, match="in memory alone") as warned:
        store.put(NAME, PAYLOAD, kind="object")
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(other, PAYLOAD, kind="object")
    assert store.get(NAME) == store.get(other) == PAYLOAD
    assert os.strerror(errno) in store.info()["problem"]
    assert not list((tmp_path / NAME[:2]).iterdir())


def test_what_is_there_is_read_after_a_write_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    store = KernelCache(tmp_path)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.warns(RuntimeWarning, match="No space left"):
        store.put(key("another kernel"), PAYLOAD, kind="object")
    assert store.find(NAME) == (PAYLOAD, "disk")


def test_a_folder_that_goes_while_it_is_written_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, replace, removed = KernelCache(tmp_path), os.replace, []

    def removed_first(source: Path, target: Path) -> None:
        if not removed:
            removed.append(source)
            source.unlink()
            source.parent.rmdir()
        replace(source, target)

    monkeypatch.setattr(os, "replace", removed_first)
    store.put(NAME, PAYLOAD, kind="object")
    assert removed and KernelCache(tmp_path).get(NAME) == PAYLOAD


@pytest.mark.parametrize("goes", ["", "..", NAME[:2]], ids=["the folder", "and what it is in", "a subfolder"])
def test_a_folder_that_goes_between_writes_is_made_again(tmp_path: Path, goes: str) -> None:
    path = tmp_path / "above" / "cache"
    store = KernelCache(path)
    store.put(NAME, PAYLOAD, kind="object")
    shutil.rmtree((path / goes).resolve())
    assert store.get(NAME) == PAYLOAD and store.entries() == [] and KernelCache(None, [path]).get(NAME) is None
    store.put(key("next"), PAYLOAD, kind="object")
    store.put(NAME, PAYLOAD[1:], kind="object")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    other = KernelCache(None, [path])
    assert other.get(key("next")) == PAYLOAD and other.get(NAME) == PAYLOAD[1:]


def test_threads_write_into_a_folder_that_goes_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "above" / "cache"
    store, stop = KernelCache(path), threading.Event()

    def remove() -> None:
        while not stop.is_set():
            shutil.rmtree(path, ignore_errors=True)
            time.sleep(0.002)

    def write(first: int) -> None:
        for n in range(first, first + 150):
            store.put(key(f"kernel {n}"), PAYLOAD, kind="object")

    remover = threading.Thread(target=remove)
    writers = [threading.Thread(target=write, args=(1000 * n,)) for n in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in (remover, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        remover.join()
        store.put(NAME, PAYLOAD, kind="object")
    assert KernelCache(path).get(NAME) == PAYLOAD and KernelCache(path).verify().bad == 0


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes of files are POSIX's")
def test_a_folder_that_another_makes_meanwhile_is_refused_if_others_may_write_to_it(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    store = KernelCache(path)
    store.put(NAME, PAYLOAD, kind="object")
    shutil.rmtree(path)
    (path / NAME[:2]).mkdir(parents=True)
    path.chmod(0o777)
    (path / NAME[:2]).chmod(0o777)
    store.discard(NAME)
    with pytest.warns(RuntimeWarning, match="other users may write"):
        store.put(NAME, PAYLOAD, kind="object")
    assert not list(path.rglob("*.kernel"))


LIMITED = """
import resource, sys, warnings
from pullback.runtime.cache.cache import KernelCache, key
store = KernelCache(sys.argv[1])
store.put(key("small"), b"s" * 100, kind="object")
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for n in range(3):
        name = key(f"large {n}")
        store.put(name, b"l" * 100_000, kind="object")
        assert store.find(name) == (b"l" * 100_000, "memory")
print(len(found), *store.verify(), sep=",")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are POSIX's")
def test_files_cut_short_by_the_system_leave_a_cache_that_verifies(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1,1,0,0"
    assert not list(tmp_path.rglob(".new-*"))


def test_eviction_keeps_the_recently_used(tmp_path: Path) -> None:
    names = [key(f"kernel {n}") for n in range(20)]
    store = KernelCache(tmp_path)
    for age, name in enumerate(names):
        store.put(name, PAYLOAD, kind="object")
        used = time.time() - (age + 2) * 86400
        os.utime(tmp_path / name[:2] / f"{name}.kernel", (used, used))
    small = KernelCache(tmp_path, max_files=7)
    assert small.get(names[15]) == PAYLOAD, "used again, hence kept"
    small.put(NAME, PAYLOAD, kind="object")
    assert {entry.key for entry in small.entries()} == {NAME, names[15], *names[:4]}


def test_eviction_bounds_the_bytes(tmp_path: Path) -> None:
    store = KernelCache(tmp_path, max_bytes=20 * len(PAYLOAD))
    for n in range(60):
        store.put(key(f"kernel {n}"), PAYLOAD, kind="object")
        assert 0 < store.info()["bytes"] <= 20 * len(PAYLOAD)
    store.put(key("larger than all"), bytes(21 * len(PAYLOAD)), kind="object")
    assert store.info()["bytes"] > 15 * len(PAYLOAD), "what is larger than the bound takes nobody's place"


FILLER = """
import os, random, signal, sys
from pathlib import Path
from pullback.runtime.cache import folder
from pullback.runtime.cache.cache import KernelCache, key
store, random = KernelCache(sys.argv[1], max_bytes=2_000_000, max_files=400), random.Random(sys.argv[2])
writes, replace, lethal = 0, os.replace, int(sys.argv[3])

def replaced(source, target):
    global writes
    if Path(source).name.startswith(".new-"):
        writes += 1
        if writes == lethal:
            os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

os.replace = replaced
while True:
    store.put(key(str(random.random())), bytes(random.randrange(1, 20_000)), kind="object")
    if writes >= 200:
        break
"""


def total(folder: Path) -> tuple[int, int]:
    """The number of files with entries and unfinished ones, and their bytes."""
    sizes = []
    for path in folder.glob("??/*"):
        with contextlib.suppress(OSError):
            sizes.append(path.lstat().st_size)
    return len(sizes), sum(sizes)


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX's")
def test_bounds_hold_for_several_writers_of_which_some_are_killed(tmp_path: Path) -> None:
    most, writers = (0, 0), []
    for n, lethal in enumerate([1, 2, 20, 0, 0, 0]):
        command = [sys.executable, "-W", "error", "-c", FILLER, str(tmp_path), str(n), str(lethal)]
        writers.append(subprocess.Popen(command))
    while alive := [writer for writer in writers if writer.poll() is None]:
        for writer in alive:
            writer.send_signal(signal.SIGSTOP)
        most = tuple(map(max, most, total(tmp_path)))
        for writer in alive:
            writer.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    assert [writer.returncode for writer in writers] == [-9, -9, -9, 0, 0, 0]
    assert 1_500_000 < most[1] <= 2_000_000 and most[0] <= 400, "the bounds were reached, and hold"
    unfinished = list(tmp_path.rglob(".new-*"))
    assert len(unfinished) <= 4
    for path in (*unfinished, tmp_path / "swept"):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    KernelCache(tmp_path, max_bytes=2_000_000, max_files=400).put(NAME, PAYLOAD, kind="object")
    assert not list(tmp_path.rglob(".new-*")) and KernelCache(tmp_path).verify().bad == 0


def test_unfinished_files_count_and_go(tmp_path: Path) -> None:
    """Files of killed processes are removed at a size bound, oldest first, even if they alone exceed the bound."""
    file = filled(tmp_path)
    for n in range(30):
        (file.parent / f".new-{n}-a").write_bytes(bytes(len(PAYLOAD)))
    store = KernelCache(tmp_path, max_bytes=20 * len(PAYLOAD))
    store.put(key("next"), PAYLOAD, kind="object")
    assert total(tmp_path)[1] <= 20 * len(PAYLOAD) and store.find(key("next")) is not None
    assert 10 < len(list(tmp_path.rglob(".new-*"))) < 20


def test_reading_refreshes_an_old_entry_but_not_a_new_one(tmp_path: Path) -> None:
    file = filled(tmp_path)
    recent, old = time.time() - 3600, time.time() - 3 * 86400
    os.utime(file, (recent, recent))
    KernelCache(tmp_path).get(NAME)
    assert abs(file.stat().st_mtime - recent) < 5
    os.utime(file, (old, old))
    KernelCache(tmp_path).get(NAME)
    assert abs(file.stat().st_mtime - time.time()) < 60


def test_old_temporaries_are_swept(tmp_path: Path) -> None:
    file = filled(tmp_path)
    stale, fresh = file.parent / ".new-1-a", file.parent / ".new-2-b"
    stale.write_bytes(b"x")
    fresh.write_bytes(b"x")
    for path in (stale, tmp_path / "swept"):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    KernelCache(tmp_path).put(key("next"), PAYLOAD, kind="object")
    assert fresh.exists() and not stale.exists()


def test_verify_and_clear_leave_other_files_alone(tmp_path: Path) -> None:
    file = filled(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (file.parent / "notes.txt").write_text("mine")
    bad = key("bad")
    (tmp_path / bad[:2]).mkdir(mode=0o700, exist_ok=True)
    (tmp_path / bad[:2] / f"{bad}.kernel").write_bytes(b"rubbish")
    store = KernelCache(tmp_path)
    assert store.verify() == (1, 1, 0)
    assert store.verify() == (1, 0, 0)
    assert store.clear() == 1
    assert store.get(NAME) is None
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["notes.txt", "notes.txt"]


def test_verify_counts_nothing_that_another_process_removes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, read = filled(tmp_path), folder.open_entry

    def removed(path: Path, **options: bool) -> AbstractContextManager[tuple[Any, os.stat_result]]:
        file.unlink()
        return read(path, **options)

    monkeypatch.setattr(folder, "open_entry", removed)
    assert KernelCache(tmp_path).verify() == (0, 0, 0)


def test_memory_is_bounded(tmp_path: Path) -> None:
    store = KernelCache(tmp_path, max_memory_bytes=3 * len(PAYLOAD))
    names = [key(f"kernel {n}") for n in range(5)]
    for name in names:
        store.put(name, PAYLOAD, kind="object")
    assert store.info()["memory_bytes"] <= 3 * len(PAYLOAD)
    assert store.find(names[0]) == (PAYLOAD, "disk")
    assert store.find(names[4]) == (PAYLOAD, "memory")


def test_threads_make_once() -> None:
    store = KernelCache()
    built: list[int] = []

    def make() -> bytes:
        built.append(1)
        time.sleep(0.02)
        return PAYLOAD

    threads = [threading.Thread(target=lambda: store.get_or_make(NAME, make, kind="object")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]


def test_a_maker_that_raises_leaves_nothing() -> None:
    store = KernelCache()

    def fail() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.get_or_make(NAME, fail, kind="object")
    assert store.get_or_make(NAME, lambda: b"made", kind="object") == b"made"


RACE = """
import sys
from pullback.runtime.cache.cache import KernelCache, key
store = KernelCache(sys.argv[1], max_files=30)
for turn in range(3):
    for n in range(20):
        name = key(f"kernel {n}")
        wanted = (str(n) * 5000).encode()
        assert store.get_or_make(name, lambda: wanted, kind="object") == wanted
        if (n + turn) % 7 == 0:
            store.discard(name)
    store = KernelCache(sys.argv[1], max_files=30)
print(store.verify()[1])
"""


def test_eight_processes_on_one_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", RACE, str(tmp_path / "new" / "c")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip(), err) == (0, "0", "")
    assert not list((tmp_path / "new" / "c").rglob(".new-*"))


WRITER = """
import gc, itertools, os, sys
from pullback.runtime.cache.cache import KernelCache, key
gc.disable()  # one collection takes as long as a writer lives
store = KernelCache(sys.argv[1])
print("go", flush=True)
for n in itertools.count(int(sys.argv[2])):
    store.put(key(f"kernel {n % 40}"), os.urandom(1) * (1 + 4999 * (n % 60)), kind="object", meta={"n": n})
"""


def kill_writers(folder: Path, times: int) -> None:
    """Kill a process that writes entries, ``times`` times at random points; it leaves complete entries or none."""
    generator = random.Random(times)
    for n in range(times):
        command = [sys.executable, "-c", WRITER, str(folder), str(7 * n)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == "go\n"
            time.sleep(generator.random() * 0.02)
            writer.kill()
        assert writer.returncode == -9
        if n % 10 == 9 or n == times - 1:
            good, bad, newer = KernelCache(folder).verify()
            assert good and not bad and not newer
    store = KernelCache(folder)
    for entry in store.entries():
        payload = store.get(entry.key)
        assert payload is not None and len(set(payload)) == 1 and len(payload) == 1 + 4999 * (entry.meta["n"] % 60)


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX's")
def test_writers_that_are_killed_leave_a_cache_that_verifies(tmp_path: Path) -> None:
    kill_writers(tmp_path, 4)


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX's")
def test_two_hundred_writers_that_are_killed(tmp_path: Path) -> None:
    kill_writers(tmp_path, 200)


def test_flips_and_cuts_of_a_program_are_misses(tmp_path: Path) -> None:
    """In each field of the header, the metadata, the sizes, the text and the object code of an entry that a call made."""
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path), "PULLBACK_VERIFY": "0"}
    code = "import numpy as np, pullback as pb; pb.grad(lambda x: np.sum(np.sin(x) ** 2))(np.ones(9))"
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    (entry,) = (e for e in KernelCache(tmp_path).entries() if e.kind == "program")
    file = tmp_path / entry.key[:2] / f"{entry.key}.kernel"
    good = file.read_bytes()
    head = len(good) - entry.size
    places = [*range(head), *range(head, head + 4), *range(head + 4, len(good), 97), len(good) - 1]
    for at in places:
        for change in (good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :], good[:at]):
            file.write_bytes(change)
            assert KernelCache(tmp_path).get(entry.key) is None, f"byte {at}"
    file.write_bytes(good)
    assert KernelCache(tmp_path).verify().bad == 0


def test_bad_arguments() -> None:
    store = KernelCache()
    for name in ("", "../../etc/passwd", NAME.upper(), NAME + "0", NAME + "\n"):
        with pytest.raises(ValueError, match="cache key"):
            store.get(name)
    with pytest.raises(ValueError, match="kind"):
        store.put(NAME, PAYLOAD, kind="pickle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="metadata"):
        store.put(NAME, PAYLOAD, kind="text", meta={"long": "x" * 70_000})


def test_default_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_folders({"PULLBACK_CACHE_DIR": "off"}) == [None]
    assert default_folders({"PULLBACK_CACHE_DIR": str(tmp_path)}) == [tmp_path]
    assert default_folders({"XDG_CACHE_HOME": str(tmp_path)}) == [tmp_path / "pullback"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folders({}) == [tmp_path / ".cache" / "pullback"]
    assert default_folders({"XDG_CACHE_HOME": "relative"}) == [tmp_path / ".cache" / "pullback"]
    assert default_folders({"PULLBACK_CACHE_DIR": "~/here"}) == [tmp_path / "here"]
    several = os.pathsep.join(["", "~/here", " ", "/shared"])
    assert default_folders({"PULLBACK_CACHE_DIR": several}) == [tmp_path / "here", Path("/shared")]
    assert default_folders({"PULLBACK_CACHE_DIR": os.pathsep.join(["OFF", "/shared"])}) == [None, Path("/shared")]


def test_other_folders_are_read_and_never_touched(tmp_path: Path) -> None:
    file = filled(tmp_path / "shared")
    damaged = key("damaged")
    broken = tmp_path / "shared" / damaged[:2] / f"{damaged}.kernel"
    broken.parent.mkdir(mode=0o700, exist_ok=True)
    broken.write_bytes(b"rubbish")
    old = time.time() - 3 * 86400
    os.utime(file, (old, old))
    store = KernelCache(tmp_path / "own", [tmp_path / "shared"])
    assert store.find(NAME) == (PAYLOAD, "disk") and store.where(NAME) == "memory"
    assert store.get(damaged) is None and broken.exists()
    assert abs(file.stat().st_mtime - old) < 5
    store.put(key("own"), PAYLOAD, kind="object")
    assert [path.name for path in (tmp_path / "own").rglob("*.kernel")] == [f"{key('own')}.kernel"]
    assert {entry.key for entry in store.entries()} == {NAME, key("own")}
    assert store.verify() == (2, 1, 0) and broken.exists()
    store.discard(NAME)
    assert store.clear() == 1 and file.exists()
    assert KernelCache(None, [tmp_path / "shared"]).find(NAME) == (PAYLOAD, "disk")
    assert KernelCache(tmp_path / "own", [tmp_path / "absent"]).get(NAME) is None
    assert not (tmp_path / "absent").exists()


def test_another_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="other users may write"):
        store = KernelCache(tmp_path / "own", [tmp_path / "shared"])
    assert store.get(NAME) is None and store.path == tmp_path / "own"
    store.put(NAME, PAYLOAD, kind="object")
    assert KernelCache(tmp_path / "own").get(NAME) == PAYLOAD


def test_generator_stamp_is_the_same_in_every_process() -> None:
    command = "from pullback.runtime.cache.cache import generator_stamp; print(generator_stamp())"
    out = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout
    assert out.strip() == generator_stamp()


def test_counters() -> None:
    counters.reset()
    before = counters.snapshot()
    counters.count("compiles", 2)
    with counters.timed("stage"), pytest.raises(KeyError), counters.timed("inner"):
        raise KeyError
    taken = counters.snapshot() - before
    assert (taken.hits, taken.disk_hits, taken.compiles) == (0, 0, 2)
    assert dict(taken.runs) == {"stage": 1, "inner": 1}
    assert taken.seconds["stage"] >= taken.seconds["inner"] >= 0
    counters.reset()
    assert counters.snapshot().compiles == 0
