"""The kernel cache: payloads by key, in memory and in folders on disk, of which the first is written.

A lookup returns exactly the bytes that were stored under the key, or nothing: every entry carries its format version, its own
key, its sizes and a checksum. A damaged, foreign, truncated or stale entry is a miss and is removed; an entry of a newer
format version is a miss and stays. Nothing read from disk is unpickled or evaluated. A folder or file that another user owns
or may write to is not read; a read-only folder may belong to root. No disk failure reaches a caller: one warning is issued,
and the cache then works in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache as memoised
from pathlib import Path
from typing import Any, Literal

from pullback.ir.core.environment import CACHE_DIR
from pullback.runtime.cache import source_stamp
from pullback.runtime.cache.build_lock import locked
from pullback.runtime.cache.entry_format import Entry, Kind, check_key, decode, encode
from pullback.runtime.cache.folder import Folder, Verified
from pullback.runtime.cache.tally import TEMPORARY
from pullback.runtime.cache.usage import note_at_exit
from pullback.runtime.process.fork import hold_over_fork
from pullback.runtime.process.locks import KeyedLocks

Origin = Literal["memory", "disk"]

MAX_BYTES = 1 << 30
"""The default limit of the payloads and headers on disk, in bytes."""
MAX_FILES = 20_000
"""The default limit of the number of entries on disk."""
MAX_MEMORY_BYTES = 64 << 20
"""The default limit of the payloads in memory, in bytes."""


def key(*parts: str) -> str:
    """Return the SHA-256, in hex, of the parts. The lengths and the order of the parts are hashed too."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


@memoised
def generator_stamp() -> str:
    """Return a hash of the package's own sources that decide the IR of programs, their kernels and their machine code, as
    imported.

    If files were replaced since the import, return a value that no other process has.
    """
    cache = default_cache()

    def keep(key: str, payload: bytes) -> None:
        cache.put(key, payload, kind="text", meta={"of": "sources of pullback", "chosen": payload[:12].decode()})

    stamp = source_stamp.imported.stamp(cache.get, keep, is_kept=bool(cache.folders))
    return f"of this process alone {os.urandom(16).hex()}" if stamp is None else stamp


def default_folders(environ: Mapping[str, str] | None = None) -> list[Path | None]:
    """Return the cache folders that the environment names: the one that is written (None for none), then the read-only ones.

    They are `PULLBACK_CACHE_DIR`, a list as in PATH, whose first item may be "off" (nothing is written); else
    `$XDG_CACHE_HOME/pullback`; else `~/.cache/pullback`. Raises ValueError.
    """
    environ = os.environ if environ is None else environ
    chosen = [word for word in map(str.strip, CACHE_DIR.read(environ).split(os.pathsep)) if word]
    if not chosen:
        return [_usual_folder(environ)]
    return [None if k == 0 and word.lower() == "off" else _absolute(word) for k, word in enumerate(chosen)]


def _usual_folder(environ: Mapping[str, str]) -> Path | None:
    base = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "pullback"
    return _absolute("~/.cache/pullback")


def _absolute(word: str) -> Path | None:
    try:
        return Path(word).expanduser().absolute()
    except (RuntimeError, OSError):
        return None


class KernelCache:
    """Payloads by key, in memory and, if a path is passed, in that folder; the folders of ``others`` are only read.

    The folder is created private (0700). It is refused, with one RuntimeWarning, if another user owns it or may write to it.
    On disk at most `max_bytes` and `max_files` are kept, whatever the number of processes that write: a sweep, which runs
    hourly and when a limit is reached, removes the least recently used entries. All methods may be called from any thread and
    any number of processes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        others: Sequence[str | os.PathLike[str]] = (),
        *,
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
        max_memory_bytes: int = MAX_MEMORY_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._max_memory_bytes = max_memory_bytes
        self.lock = threading.Lock()
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._makers = KeyedLocks()
        self._warned = False
        self._first = None if path is None else self._folder(path, owned=True)
        self.folders = [f for f in (self._first, *(self._folder(other, owned=False) for other in others)) if f is not None]

    def _folder(self, path: str | os.PathLike[str], *, owned: bool) -> Folder:
        limits = {"max_bytes": self._max_bytes, "max_files": self._max_files}
        return Folder(Path(path).absolute(), owned=owned, warn=self._warn, **limits)

    @property
    def path(self) -> Path | None:
        """The folder that is written; None if the disk is not used."""
        return None if self._first is None else self._first.path

    def get(self, key: str) -> bytes | None:
        """Return the payload of `key`, or None."""
        hit = self.find(key)
        return None if hit is None else hit[0]

    def find(self, key: str) -> tuple[bytes, Origin] | None:
        """Return the payload of `key` and its origin, or None. Raises ValueError if `key` is no SHA-256."""
        check_key(key)
        with self.lock:
            payload = self._memory.get(key)
            if payload is not None:
                self._memory.move_to_end(key)
                return payload, "memory"
        for folder in self.folders if self._may_use_disk() else ():
            payload = folder.read(key)
            if payload is not None:
                self._remember(key, payload)
                return payload, "disk"
        return None

    def where(self, key: str) -> Origin | None:
        """Return the origin of `key`, or None, without reading, moving or storing anything."""
        check_key(key)
        with self.lock:
            if key in self._memory:
                return "memory"
        return "disk" if self._may_use_disk() and any(folder.has(key) for folder in self.folders) else None

    def put(self, key: str, payload: bytes, *, kind: Kind, meta: Mapping[str, Any] | None = None) -> None:
        """Store `payload`, replacing what `key` held.

        `meta` is a small JSON-serialisable dict, returned by `entries`. Raises ValueError for a bad key or kind or more than
        64 KiB of metadata.
        """
        check_key(key)
        data = encode(key, payload, kind, meta or {})
        self._remember(key, payload)
        if self._first is not None and self._may_use_disk(source_stamp.INTERVAL):
            self._first.write(key, data)

    def get_or_make(self, key: str, make: Callable[[], bytes], *, kind: Kind, meta: Mapping[str, Any] | None = None) -> bytes:
        """Return the payload of `key`; on a miss, call ``make`` and store its result. Of threads that miss at the same time,
        one calls ``make``."""
        payload = self.get(key)
        if payload is not None:
            return payload
        with self._makers.hold(key):
            payload = self.get(key)
            if payload is None:
                payload = make()
                self.put(key, payload, kind=kind, meta=meta)
            return payload

    def building(self, key: str) -> AbstractContextManager[bool]:
        """Return a context in which no other process that shares the folder builds ``key``. Its value is whether there may be
        such processes: one may have stored the entry since the last look-up."""
        check_key(key)
        folder = self.path if self._may_use_disk() else None
        if folder is None:
            return contextlib.nullcontext(False)
        return locked(folder / key[:2] / f"{TEMPORARY}lock-{key}")

    def known(self) -> list[str]:
        """Return the keys of the entries in memory: what this process has read or made."""
        with self.lock:
            return list(self._memory)

    def discard(self, key: str) -> None:
        """Remove `key` from memory and from the folder that is written."""
        check_key(key)
        with self.lock:
            self._memory_bytes -= len(self._memory.pop(key, b""))
        if self._first is not None:
            self._first.discard(key)

    def entries(self) -> list[Entry]:
        """Return the entries on disk, most recently used first, without unreadable ones."""
        by_key = {entry.key: entry for folder in reversed(self.folders) for entry in folder.entries()}
        return sorted(by_key.values(), key=lambda entry: (-entry.modified, entry.key))

    def raw(self, key: str) -> bytes | None:
        """Return the complete file of an entry on disk, or None if there is no valid one."""
        check_key(key)
        return next((data for data in (folder.raw(key) for folder in self.folders) if data is not None), None)

    def put_raw(self, key: str, data: bytes) -> None:
        """Store the complete file of an entry as another cache wrote it. Raises Damaged, Newer."""
        payload = decode(data, key)
        self._remember(key, payload)
        if self._first is not None:
            self._first.write(key, data)

    def verify(self) -> Verified:
        """Check every entry on disk, and remove damaged ones from the folder that is written."""
        return sum((folder.verify() for folder in self.folders), Verified(0, 0, 0))

    def clear(self) -> int:
        """Empty the memory and the folder that is written; return the number of entries removed. Files that are no entries
        stay."""
        with self.lock:
            self._memory.clear()
            self._memory_bytes = 0
        return 0 if self._first is None else self._first.clear()

    def info(self) -> dict[str, Any]:
        """Return the path (None if the disk is not used), the number and size of its entries, the limits, the last problem and
        the other folders."""
        counts = [_measured(folder) for folder in self.folders]
        first = counts[0] if self._first is not None else (0, 0)
        problems = [
            problem for problem in (*(f.problem for f in self.folders), source_stamp.imported.changed) if problem is not None
        ]
        with self.lock:
            return {
                "path": None if self.path is None else str(self.path),
                "entries": first[0],
                "bytes": first[1],
                "max_entries": self._max_files,
                "max_bytes": self._max_bytes,
                "memory_entries": len(self._memory),
                "memory_bytes": self._memory_bytes,
                "problem": problems[0] if problems else None,
                "others": [(str(f.path), *n) for f, n in zip(self.folders, counts, strict=True) if not f.owned and f.path],
            }

    def _may_use_disk(self, within: float = source_stamp.SELDOM) -> bool:
        """Return whether the files of the imported modules are unchanged since the import, so that entries on disk belong to
        this version. Warns once if not."""
        if not self.folders or source_stamp.imported.are_as_imported(within):
            return bool(self.folders)
        if source_stamp.imported.changed is not None:
            self._warn(f"the kernel cache is neither read nor written any more: {source_stamp.imported.changed}")
        return False

    def _warn(self, text: str) -> None:
        with self.lock:
            was_warned, self._warned = self._warned, True
        if not was_warned:
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _remember(self, name: str, payload: bytes) -> None:
        with self.lock:
            self._memory_bytes += len(payload) - len(self._memory.pop(name, b""))
            self._memory[name] = payload
            while self._memory_bytes > self._max_memory_bytes and self._memory:
                _, dropped = self._memory.popitem(last=False)
                self._memory_bytes -= len(dropped)


def _measured(folder: Folder) -> tuple[int, int]:
    """Return the number of entries and their total size in bytes."""
    sizes = []
    for _, path in folder.files():
        with contextlib.suppress(OSError):
            sizes.append(path.lstat().st_size)
    return len(sizes), sum(sizes)


_default_lock = threading.Lock()
hold_over_fork(_default_lock)
_default: KernelCache | None = None


def default_cache() -> KernelCache:
    """Return the cache of this process; the environment is read at the first call."""
    global _default
    with _default_lock:
        if _default is None:
            first, *others = default_folders()
            _default = KernelCache(first, [other for other in others if other is not None])
            for lock in (_default.lock, *(folder.sweeping for folder in _default.folders)):
                hold_over_fork(lock)
            if _default.path is not None:
                note_at_exit(_default.path)
        return _default
