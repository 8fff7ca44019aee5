"""One folder of the kernel cache: entries in files, two levels deep by their keys.

A folder that is written is private to its user (0700). Files are written under another name and renamed, so that no reader
meets half of one. A folder that is only read may be root's too, and nothing in it is touched. No failure of the disk leaves this
module, but as the reason that nothing is written any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pullback.runtime.entries import (
    FLAGS,
    HEAD,
    NAME,
    SUFFIX,
    Damaged,
    Entry,
    Newer,
    decode,
    described,
    distrust,
    open_entry,
)
from pullback.runtime.usage import FILE as USES

_TEMPORARY = ".new-"
_STAMP = "swept"
_FOLDER = re.compile(r"[0-9a-f]{2}")
_HOUR = 3600.0
_DAY = 24 * _HOUR
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS
_OF_ONE_FILE = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)
"""What stands in the place of one entry, and hinders no other."""
_GONE = (errno.ENOENT, errno.ESTALE)
"""What a folder that another process has just removed, or a server moved, answers once."""


class Verified(NamedTuple):
    """How many entries were good, damaged (and removed, where the folder is ours) and of a newer version (and left alone)."""

    good: int
    bad: int
    newer: int

    def __add__(self, other: tuple[int, ...]) -> Verified:  # type: ignore[override]
        return Verified(*map(sum, zip(self, other, strict=True)))


class Folder:
    """A folder of entries. ``path`` is None where it may not be used; ``problem`` says why, or what failed last.

    ``owned``: it is the folder that is written; ``writes``: it still is. ``warn`` is told why it is not used or not written.
    """

    def __init__(
        self, path: Path, *, owned: bool, max_bytes: int, max_files: int, lock: threading.Lock, warn: Callable[[str], None]
    ) -> None:
        self.owned = self.writes = owned
        self.problem: str | None = None
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._warn = warn
        self._lock = lock
        self._trusted: set[str] = set()
        self._written = [0, 0]
        self.path = self._open(path)

    # reading

    def read(self, name: str) -> bytes | None:
        """The payload of a key, or None."""
        if self.path is None:
            return None
        path = self.place(name)
        return self._read(path, name) if self._is_trusted(path.parent) else None

    def has(self, name: str) -> bool:
        """Whether there is a file for a key."""
        return self.path is not None and self.place(name).is_file()

    def place(self, name: str) -> Path:
        """The file of a key."""
        assert self.path is not None
        return self.path / name[:2] / (name + SUFFIX)

    def entries(self) -> Iterator[Entry]:
        """The entries; unreadable ones are left out."""
        for name, path in self.files():
            with contextlib.suppress(OSError, Damaged, Newer), open_entry(path, trusts_root=not self.owned) as (file, status):
                yield described(file.read(HEAD), name, status.st_size, status.st_mtime)

    def verify(self) -> Verified:
        """Reads every entry; removes the damaged ones where the folder is written."""
        counts = [0, 0, 0]
        for name, path in self.files():
            try:
                with open_entry(path, trusts_root=not self.owned) as (file, _):
                    decode(file.read(), name)
                counts[0] += 1
            except Newer:
                counts[2] += 1
            except FileNotFoundError:
                continue  # another process has removed it meanwhile
            except (OSError, Damaged):
                counts[1] += 1
                self._remove(path)
        return Verified(*counts)

    def files(self) -> Iterator[tuple[str, Path]]:
        """The files of entries with their keys."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for file in sorted(os.listdir(folder)):
                    match = NAME.fullmatch(file)
                    if match and match[1].startswith(folder.name):
                        yield match[1], folder / file

    def raw(self, name: str) -> bytes | None:
        """The whole file of a key, if it is good."""
        if self.path is None or not self._is_trusted(self.place(name).parent):
            return None
        with contextlib.suppress(OSError, Damaged, Newer), open_entry(self.place(name), trusts_root=not self.owned) as (file, _):
            data: bytes = file.read()
            decode(data, name)
            return data
        return None

    def _read(self, path: Path, name: str) -> bytes | None:
        """The payload, or None; a file that may not be used or is damaged is removed, one of a newer version left."""
        try:
            with open_entry(path, trusts_root=not self.owned) as (file, status):
                if status.st_size > self._max_bytes:
                    raise Damaged("larger than the whole cache may be")
                payload = decode(file.read(), name)
        except Newer:
            return None
        except Damaged:
            self._remove(path)
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._remove(path)
            return None
        if self.owned and abs(time.time() - status.st_mtime) > _DAY:
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    # writing

    def write(self, name: str, data: bytes) -> None:
        """Stores the bytes of an entry's file. The first failure is warned of, and nothing is written after it."""
        if self.path is None or not self.writes:
            if self.writes and self.problem:
                self._give_up(self.problem)
            return
        path = self.place(name)
        for again in (True, False):
            try:
                if not self._store(path, data):
                    return
                break
            except OSError as error:
                self._trusted.discard(path.parent.name)
                if again and error.errno in _GONE:
                    continue
                self.problem = f"{path}: {error.strerror or error}"
                if error.errno not in _OF_ONE_FILE:
                    self._give_up(f"{self.path}: {error.strerror or error}")
                return
        with contextlib.suppress(OSError):
            self._sweep_if_due(len(data))

    def _store(self, path: Path, data: bytes) -> bool:
        """Writes under another name, then renames. False where the subfolder may not be used. Raises OSError."""
        temporary = path.parent / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
        if not self._is_trusted(path.parent):
            return False
        try:
            with os.fdopen(os.open(temporary, _WRITE_FLAGS, 0o600), "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError:
            self._remove(temporary)
            raise
        return True

    def discard(self, name: str) -> None:
        """Removes the file of a key."""
        if self.path is not None:
            self._remove(self.place(name))

    def clear(self) -> int:
        """Removes all entries; how many. Files that are not of this cache stay."""
        removed = sum(self._remove(path) for _, path in self.files())
        for folder in self._folders():
            _remove_temporaries(folder, older_than=0.0)
            with contextlib.suppress(OSError):
                folder.rmdir()
        if self.path is not None:
            self._remove(self.path / _STAMP)
            self._remove(self.path / USES)
        return removed

    def _remove(self, path: Path) -> bool:
        if not self.owned:
            return False
        try:
            path.unlink()
        except OSError:
            return False
        return True

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self.writes = False
        self._warn(f"kernel cache {problem}: what is compiled from here on is kept in memory alone")

    # trust

    def _open(self, path: Path) -> Path | None:
        try:
            if self.owned:
                path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=0o700)
            link = path.lstat()
            reason = self._distrust(link) if not stat.S_ISLNK(link.st_mode) else self._distrust_link(link)
            status = path.stat()
            reason = reason or self._distrust(status)
            if not stat.S_ISDIR(status.st_mode):
                reason = "it is not a folder"
        except OSError as error:
            self.problem = f"{path}: {error.strerror or error}"
            return None
        if reason is not None:
            self._refuse(path, reason)
            return None
        return path

    def _refuse(self, path: Path, reason: str) -> None:
        self.problem = f"{path}: {reason}"
        self._warn(f"kernel cache {path} is not used: {reason}")

    def _distrust(self, status: os.stat_result) -> str | None:
        return distrust(status, trusts_root=not self.owned)

    def _distrust_link(self, status: os.stat_result) -> str | None:
        trusted = () if not hasattr(os, "geteuid") else (os.geteuid(),) if self.owned else (os.geteuid(), 0)
        return f"it is a symbolic link of user {status.st_uid}" if trusted and status.st_uid not in trusted else None

    def _is_trusted(self, folder: Path) -> bool:
        """Whether the entries of this subfolder may be used; asked once for each subfolder."""
        if folder.name in self._trusted:
            return True
        try:
            status = folder.lstat()
        except OSError:
            return False
        reason = self._distrust(status) if stat.S_ISDIR(status.st_mode) else "it is not a folder"
        if reason is not None:
            self._refuse(folder, reason)
            return False
        self._trusted.add(folder.name)
        return True

    def _folders(self) -> list[Path]:
        if self.path is None:
            return []
        try:
            with os.scandir(self.path) as items:
                names = sorted(item.name for item in items if item.is_dir(follow_symlinks=False))
        except OSError:
            return []
        folders = [self.path / name for name in names if _FOLDER.fullmatch(name)]
        return [folder for folder in folders if self._is_trusted(folder)]

    # bounds

    def _sweep_if_due(self, size: int) -> None:
        assert self.path is not None
        with self._lock:
            self._written[0] += size
            self._written[1] += 1
            wrote_much = self._written[0] * 8 > self._max_bytes or self._written[1] * 8 > self._max_files
            stamp = self.path / _STAMP
            if not wrote_much:
                with contextlib.suppress(FileNotFoundError):
                    if abs(time.time() - stamp.lstat().st_mtime) < _HOUR:
                        return
            self._written = [0, 0]
        with contextlib.suppress(FileNotFoundError):
            stamp.unlink()
        os.close(os.open(stamp, _WRITE_FLAGS, 0o600))
        self._sweep()

    def _sweep(self) -> None:
        """Removes old temporaries and, past a limit, the least recently used until a tenth below it."""
        for folder in self._folders():
            _remove_temporaries(folder, older_than=_HOUR)
        files: list[tuple[float, int, Path]] = []
        for _, path in self.files():
            with contextlib.suppress(OSError):
                status = path.lstat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= self._max_bytes and len(files) <= self._max_files:
            return
        files.sort(reverse=True)
        while files and (total > self._max_bytes * 0.9 or len(files) > self._max_files * 0.9):
            _, size, path = files.pop()
            total -= size
            self._remove(path)


def _remove_temporaries(folder: Path, *, older_than: float) -> None:
    with contextlib.suppress(OSError):
        for file in os.listdir(folder):
            path = folder / file
            with contextlib.suppress(OSError):
                if file.startswith(_TEMPORARY) and time.time() - path.lstat().st_mtime >= older_than:
                    path.unlink()
