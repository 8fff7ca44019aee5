"""The used fraction of a cache folder's limits, tracked for any number of writers without locks.

Before writing an entry, a writer appends to a file a number of bytes proportional to the entry's share of the limits. A sweep
reads the length of that file, then measures the folder, and notes both. What was appended beyond that length counts on top.
Therefore no entry is missed except those being written when the sweep began, for which ``LIMIT`` leaves room, and concurrent
sweeps are harmless: each note is an upper bound. Removed entries, and entries that a killed process announced and never wrote,
are accounted for by the next sweep.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from pullback.runtime.cache.entry_format import FLAGS

TEMPORARY = ".new-"
"""The prefix of the names of unfinished files."""
FULL = 1 << 18
"""The number of bytes appended for the whole of a limit: an entry of 4 KiB in 1 GiB adds one byte, one file of 20,000 adds 14."""
LIMIT = 15 / 16
"""The fraction of a limit at which a sweep is due: the remainder, 64 MiB of 1 GiB, is for entries half written during a sweep."""
_LONGEST = 16 * FULL
"""The length in bytes beyond which the file is emptied at the next sweep."""
_HOUR = 3600.0
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | FLAGS
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOFOLLOW
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS
_FILE, _NOTE = "written", "swept"


class Tally:
    """The two files of one folder: the shares written so far, and the note of the last sweep."""

    def __init__(self, folder: Path, max_bytes: int, max_files: int) -> None:
        self._file, self._note = folder / _FILE, folder / _NOTE
        self._bounds = (max_bytes, max_files)

    @property
    def files(self) -> tuple[Path, ...]:
        """The paths of the two files, which belong to the cache but are no entries."""
        return self._file, self._note

    def add(self, size: int) -> None:
        """Count a file of ``size`` bytes that will be written. Raises OSError."""
        file = os.open(self._file, _APPEND, 0o600)
        try:
            os.write(file, bytes(self._share(size, 1)))
        finally:
            os.close(file)

    def is_due(self) -> bool:
        """Return whether to sweep: a limit is exceeded, the last sweep is an hour ago, or there is no note of one with these
        limits."""
        try:
            with os.fdopen(os.open(self._note, os.O_RDONLY | _NOFOLLOW)) as file:
                age = time.time() - os.fstat(file.fileno()).st_mtime
                length, used, *bounds = map(int, file.read(200).split())
        except (OSError, ValueError):
            return True
        since = self._length() - length
        return tuple(bounds) != self._bounds or since < 0 or used + since > LIMIT * FULL or abs(age) >= _HOUR

    def begin(self) -> int:
        """Return the length of the file before a sweep measures the folder. Raises OSError."""
        if self._length() > _LONGEST:
            self._replace(self._file, b"")
        return self._length()

    def note(self, length: int, size: int, files: int) -> None:
        """Note what a sweep left, ``size`` bytes in ``files`` files; ``length`` is what ``begin`` returned. Raises OSError."""
        self._replace(self._note, f"{length} {self._share(size, files)} {self._bounds[0]} {self._bounds[1]}".encode())

    def _length(self) -> int:
        try:
            return self._file.lstat().st_size
        except OSError:
            return 0

    def _share(self, size: int, files: int) -> int:
        max_bytes, max_files = self._bounds
        return max(-(-size * FULL // max_bytes), -(-files * FULL // max_files))

    def _replace(self, path: Path, data: bytes) -> None:
        new = path.with_name(f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}")
        try:
            with os.fdopen(os.open(new, _CREATE, 0o600), "wb") as file:
                file.write(data)
            os.replace(new, path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
