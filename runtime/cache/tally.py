"""How much of its bounds a folder of the kernel cache has used, for any number of writers without locks.

A writer appends to a file before it writes an entry, as many bytes as the entry takes of the bounds. A sweep reads the length
of that file, then measures what is in the folder, and notes both. What was appended after that length counts on top. So whatever
happens meanwhile, no entry is left out but those that were being written when the sweep began, for which ``LIMIT`` leaves room,
and several sweeps at once do no harm: each note is an upper bound. What was removed, or what a killed process announced and
never wrote, is forgotten by the next sweep.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

from pullback.runtime.cache.entry_format import FLAGS

TEMPORARY = ".new-"
"""How the names of files begin that are being written."""
FULL = 1 << 18
"""So many bytes of the file stand for the whole of a bound: an entry of 4 KiB in 1 GiB for one, of 20,000 files each for 14."""
LIMIT = 15 / 16
"""The part of a bound at which a sweep is due: the rest, 64 MiB of 1 GiB, is for entries that are half written at a sweep."""
_LONGEST = 16 * FULL
"""A file that is longer begins anew."""
_HOUR = 3600.0
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | FLAGS
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOFOLLOW
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS
_FILE, _NOTE = "written", "swept"


class Tally:
    """The two files of one folder: what was written, and the note of the last sweep."""

    def __init__(self, folder: Path, max_bytes: int, max_files: int) -> None:
        self._file, self._note = folder / _FILE, folder / _NOTE
        self._bounds = (max_bytes, max_files)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that belong to the cache, and not to its entries."""
        return self._file, self._note

    def add(self, size: int) -> None:
        """Count a file of so many bytes that will be written. Raises OSError."""
        file = os.open(self._file, _APPEND, 0o600)
        try:
            os.write(file, bytes(self._share(size, 1)))
        finally:
            os.close(file)

    def is_due(self) -> bool:
        """Whether to sweep: a bound is passed, the last sweep is an hour ago, or there is no note of one with these bounds."""
        try:
            with os.fdopen(os.open(self._note, os.O_RDONLY | _NOFOLLOW)) as file:
                age = time.time() - os.fstat(file.fileno()).st_mtime
                length, used, *bounds = map(int, file.read(200).split())
        except (OSError, ValueError):
            return True
        since = self._length() - length
        return tuple(bounds) != self._bounds or since < 0 or used + since > LIMIT * FULL or abs(age) >= _HOUR

    def begin(self) -> int:
        """The length of the file before a sweep measures. Raises OSError."""
        if self._length() > _LONGEST:
            self._replace(self._file, b"")
        return self._length()

    def note(self, length: int, size: int, files: int) -> None:
        """Note what a sweep left, which began at that length: so many bytes in so many files. Raises OSError."""
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
        new = path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(new, _CREATE, 0o600), "wb") as file:
                file.write(data)
            os.replace(new, path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
