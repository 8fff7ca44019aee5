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
_OF_ONE_FILE = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)
"""What stands in the place of one entry, and hinders no other."""
_FOR_NOW = (errno.EMFILE, errno.ENFILE)
"""There are no file descriptors left; there may be later."""
_GONE = (errno.ENOENT, errno.ESTALE)
"""What a folder that another process has just removed, or a server moved, answers."""
_ATTEMPTS = 5
"""So often a write begins anew where folders go away meanwhile, or a sweep takes the unfinished file for a leftover."""
_LEFTOVER = 60.0
"""In seconds: an unfinished file is written in a hundredth of it; its writer was killed, or is very slow and begins anew."""


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
        self, path: Path, *, owned: bool, max_bytes: int, max_files: int, warn: Callable[[str], None]
    ) -> None:
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
        if len(data) > self._max_bytes:
            return
        path = self.place(name)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._store(path, data)
                return
            except OSError as error:
                if error.errno in _GONE and attempt < _ATTEMPTS:
                    self._open(self.path)
                    continue
                self.problem = f"{path}: {error.strerror or error}"
                if error.errno not in (*_OF_ONE_FILE, *_FOR_NOW):
                    self._give_up(f"{self.path}: {error.strerror or error}")
                return

    def _store(self, path: Path, data: bytes) -> None:
        """Writes under another name, then renames; nothing where the subfolder may not be used. Raises OSError."""
        assert self.path is not None
        if self._is_refused(self.path):
            return
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
        if self._is_refused(path.parent):
            return
        self._tally.add(len(data))
        self._sweep_if_due(len(data))
        temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(temporary, _WRITE_FLAGS, 0o600), "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError:
            self._remove(temporary)
            raise

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
        """Whether the folder or a subfolder may not be used, which is warned of. Raises OSError."""
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
        """Whether the entries of this subfolder may be used: it and the folder are there, and nobody else's."""
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
        """Sweeps where a file of so many bytes, which is counted already, passes a bound, or the last sweep was an hour ago."""
        if self._tally.is_due():
            with self.sweeping, contextlib.suppress(OSError):
                if self._tally.is_due():
                    self._sweep(size)

    def _sweep(self, size: int) -> None:
        """Removes what killed processes left and, where a file of so many bytes more would pass a bound, the least recently used
        until a tenth is free. Raises OSError."""
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
        """The time of its last use, the bytes and the path of each file, unfinished ones too."""
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
