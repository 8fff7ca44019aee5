"""One folder of the kernel cache: entry files, in subfolders named by the first two hex digits of their keys.

A folder that is written is private to its user (0700). A file is written under a temporary name and renamed, so that no reader
meets a partial one. A read-only folder may belong to root, and nothing in it is changed. OSErrors are not raised to callers;
one that persists stops further writes and is kept as ``problem``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pullback.runtime.cache.entry_format import (
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
from pullback.runtime.cache.tally import LIMIT, TEMPORARY, Tally
from pullback.runtime.cache.usage import FILE as USES

_FOLDER = re.compile(r"[0-9a-f]{2}")
_DAY = 86400.0
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS
_SINGLE_ENTRY_ERRORS = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)
"""Errors caused by a file or folder at one entry's path; other entries can still be written."""
_TRANSIENT_ERRORS = (errno.EMFILE, errno.ENFILE)
"""Errors of exhausted file descriptors, which may be transient."""
_MISSING_FOLDER_ERRORS = (errno.ENOENT, errno.ESTALE)
"""Errors raised if another process has just removed the folder, or a file server has moved it."""
_ATTEMPTS = 5
"""The number of times that a write is tried if folders are removed meanwhile, or if a sweep removes the unfinished file as a
leftover."""
_LEFTOVER = 60.0
"""The age in seconds at which an unfinished file counts as left by a killed process; writing one takes about a hundredth of
it."""


class Verified(NamedTuple):
    """The numbers of entries that were good, bad (damaged; removed if the folder is owned) and of a newer format version (left
    in place)."""

    good: int
    bad: int
    newer: int

    def __add__(self, other: tuple[int, ...]) -> Verified:  # type: ignore[override]
        return Verified(*map(sum, zip(self, other, strict=True)))


class Folder:
    """A folder of entries. ``path`` is None if it may not be used; ``problem`` is the reason, or the last failure.

    ``owned``: this is the folder that is written; ``writes``: writing has not been given up. ``warn`` is called with the
    reason if the folder is not used or no longer written.
    """

    def __init__(self, path: Path, *, owned: bool, max_bytes: int, max_files: int, warn: Callable[[str], None]) -> None:
        self.owned = self.writes = owned
        self.problem: str | None = None
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._warn = warn
        self._tally = Tally(path, max_bytes, max_files)
        self.sweeping = threading.Lock()
        self.path = self._open(path)

    # reading

    def read(self, name: str) -> bytes | None:
        """Return the payload of a key, or None."""
        if self.path is None:
            return None
        path = self.path_of(name)
        return self._read(path, name) if self._is_trusted(path.parent) else None

    def has(self, name: str) -> bool:
        """Return whether there is a file for a key."""
        return self.path is not None and self.path_of(name).is_file()

    def path_of(self, name: str) -> Path:
        """Return the path of a key's file."""
        assert self.path is not None
        return self.path / name[:2] / (name + SUFFIX)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries, without unreadable ones."""
        for name, path in self.files():
            with contextlib.suppress(OSError, Damaged, Newer), open_entry(path, trusts_root=not self.owned) as (file, status):
                yield described(file.read(HEAD), name, status.st_size, status.st_mtime)

    def verify(self) -> Verified:
        """Read every entry and count the good, bad and newer ones; bad ones are removed if the folder is owned."""
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
        """Yield the key and the path of each entry file."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for file in sorted(os.listdir(folder)):
                    match = NAME.fullmatch(file)
                    if match and match[1].startswith(folder.name):
                        yield match[1], folder / file

    def raw(self, key: str) -> bytes | None:
        """Return the complete file of a key, or None if there is no valid one."""
        if self.path is None or not self._is_trusted(self.path_of(key).parent):
            return None
        with contextlib.suppress(OSError, Damaged, Newer), open_entry(self.path_of(key), trusts_root=not self.owned) as (file, _):
            data: bytes = file.read()
            decode(data, key)
            return data
        return None

    def _read(self, path: Path, name: str) -> bytes | None:
        """Return the payload, or None. A file that is damaged or may not be used is removed; one of a newer version is left."""
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
        """Store the bytes of an entry's file. After a failure that is not specific to this entry and not transient, a warning
        is issued and nothing is written any more."""
        if self.path is None or not self.writes:
            if self.writes and self.problem:
                self._give_up(self.problem)
            return
        if len(data) > self._max_bytes:
            return
        path = self.path_of(name)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._store(path, data)
                return
            except OSError as error:
                if error.errno in _MISSING_FOLDER_ERRORS and attempt < _ATTEMPTS:
                    self._open(self.path)
                    continue
                self.problem = f"{path}: {error.strerror or error}"
                if error.errno not in (*_SINGLE_ENTRY_ERRORS, *_TRANSIENT_ERRORS):
                    self._give_up(f"{self.path}: {error.strerror or error}")
                return

    def _store(self, path: Path, data: bytes) -> None:
        """Write under a temporary name, then rename; write nothing if the subfolder may not be used. Raises OSError."""
        assert self.path is not None
        if self._is_refused(self.path):
            return
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
        if self._is_refused(path.parent):
            return
        self._tally.add(len(data))
        self._sweep_if_due(len(data))
        temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            with os.fdopen(os.open(temporary, _WRITE_FLAGS, 0o600), "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError:
            self._remove(temporary)
            raise

    def discard(self, name: str) -> None:
        """Remove the file of a key."""
        if self.path is not None:
            self._remove(self.path_of(name))

    def clear(self) -> int:
        """Remove all entries and return their number. Files that do not belong to the cache stay."""
        removed = sum(self._remove(path) for _, path in self.files())
        for folder in self._folders():
            _remove_temporaries(folder, older_than=0.0)
            with contextlib.suppress(OSError):
                folder.rmdir()
        if self.path is not None:
            _remove_temporaries(self.path, older_than=0.0)
            for path in (self.path / USES, *self._tally.files):
                self._remove(path)
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
            return None if self._is_refused(path) else path
        except OSError as error:
            self.problem = f"{path}: {error.strerror or error}"
            return None

    def _is_refused(self, path: Path) -> bool:
        """Return whether the folder or a subfolder may not be used, and warn if so. Raises OSError."""
        link = path.lstat()
        is_link = stat.S_ISLNK(link.st_mode) and not _FOLDER.fullmatch(path.name)
        status = path.stat() if is_link else link
        reason = (self._distrust_link(link) if is_link else None) or self._distrust(status)
        if not stat.S_ISDIR(status.st_mode):
            reason = "it is not a folder"
        if reason is not None:
            self.problem = f"{path}: {reason}"
            self._warn(f"kernel cache {path} is not used: {reason}")
        return reason is not None

    def _distrust(self, status: os.stat_result) -> str | None:
        return distrust(status, trusts_root=not self.owned)

    def _distrust_link(self, status: os.stat_result) -> str | None:
        trusted = () if not hasattr(os, "geteuid") else (os.geteuid(),) if self.owned else (os.geteuid(), 0)
        return f"it is a symbolic link of user {status.st_uid}" if trusted and status.st_uid not in trusted else None

    def _is_trusted(self, folder: Path) -> bool:
        """Return whether the entries of this subfolder may be used: it and the folder exist, and no other user may write to
        them."""
        assert self.path is not None
        try:
            return not self._is_refused(self.path) and not self._is_refused(folder)
        except OSError:
            return False

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
        """Sweep if a file of ``size`` bytes, which is counted already, exceeds a limit, or if the last sweep was an hour ago."""
        if self._tally.is_due():
            with self.sweeping, contextlib.suppress(OSError):
                if self._tally.is_due():
                    self._sweep(size)

    def _sweep(self, size: int) -> None:
        """Remove what killed processes left and, if a further file of ``size`` bytes would exceed a limit, the least recently
        used entries until a tenth of the limit is free. Raises OSError."""
        assert self.path is not None
        length = self._tally.begin()
        for folder in (self.path, *self._folders()):
            _remove_temporaries(folder, older_than=_LEFTOVER)
        files = sorted(self._measured())
        total, count = size + sum(each for _, each, _ in files), 1 + len(files)
        if total > LIMIT * self._max_bytes or count > LIMIT * self._max_files:
            for _, each, path in files:
                if total <= self._max_bytes * 0.9 and count <= self._max_files * 0.9:
                    break
                self._remove(path)
                total, count = total - each, count - 1
        self._tally.note(length, total, count)

    def _measured(self) -> Iterator[tuple[float, int, Path]]:
        """Yield the time of the last use, the bytes and the path of each file, unfinished ones included."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for file in os.listdir(folder):
                    path = folder / file
                    if file.startswith(TEMPORARY) or NAME.fullmatch(file):
                        with contextlib.suppress(OSError):
                            status = path.lstat()
                            yield status.st_mtime, status.st_size, path


def _remove_temporaries(folder: Path, *, older_than: float) -> None:
    with contextlib.suppress(OSError):
        for file in os.listdir(folder):
            path = folder / file
            with contextlib.suppress(OSError):
                if file.startswith(TEMPORARY) and time.time() - path.lstat().st_mtime >= older_than:
                    path.unlink()
