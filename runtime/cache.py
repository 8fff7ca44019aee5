"""The kernel cache: bytes by key, in memory and in a private folder on disk.

What comes out for a key is exactly what was put in under that key, or nothing: every entry carries its format
version, its own key, its sizes and a checksum, and one that is damaged, foreign, truncated or stale is a miss
and is removed. Nothing read from disk is unpickled or evaluated. A folder or file that another user owns or
may write to is not read. No failure of the disk reaches a caller: the cache then works in memory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.resources
import json
import os
import re
import secrets
import stat
import struct
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache as memoised
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, get_args

from pullback.runtime.fork import hold_over_fork
from pullback.runtime.locks import KeyedLocks

Kind = Literal["object", "text", "cubin", "program"]
Origin = Literal["memory", "disk"]

KINDS: tuple[str, ...] = get_args(Kind)
FORMAT_VERSION = 2
MAX_BYTES = 1 << 30
MAX_FILES = 20_000
MAX_MEMORY_BYTES = 64 << 20

_MAGIC = b"pullback"
# magic, format version, kind, bytes of metadata and of payload, key; then the sha256 of all the rest
_CHECKED = struct.Struct("<8sHHIQ32s")
_HEADER = struct.Struct(_CHECKED.format + "32s")
_MAX_META = 1 << 16
_SUFFIX = ".kernel"
_TEMPORARY = ".new-"
_STAMP = "swept"
_KEY = re.compile(r"[0-9a-f]{64}")
_ENTRY = re.compile(r"([0-9a-f]{64})" + re.escape(_SUFFIX))
_FOLDER = re.compile(r"[0-9a-f]{2}")
_HOUR = 3600.0
_DAY = 24 * _HOUR
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _FLAGS
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One stored payload as `entries` lists it; `size` is the payload's, `modified` a Unix time."""

    key: str
    kind: str
    size: int
    modified: float
    meta: Mapping[str, Any]


class _Damaged(Exception):
    """An entry's file is not what this cache would have written."""


def key(*parts: str) -> str:
    """The sha256, in hex, of the parts; parts of other lengths or in another order give another key."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


def _source_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _source_files(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".py"):
            yield prefix + item.name, item


@memoised
def generator_stamp() -> str:
    """A hash of our own sources that decide what programs, their kernels and the code of those are; read once in a process."""
    digest = hashlib.sha256()
    for package in ("pullback.codegen", "pullback.ir", "pullback.runtime"):
        for name, file in _source_files(importlib.resources.files(package), package + "/"):
            digest.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    digest.update((importlib.resources.files("pullback") / "pipeline.py").read_bytes())
    return digest.hexdigest()


def default_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder that the environment asks for, None for none.

    `PULLBACK_CACHE_DIR`, where "off" means no disk; else `$XDG_CACHE_HOME/pullback`; else
    `~/.cache/pullback`.
    """
    environ = os.environ if environ is None else environ
    chosen = environ.get("PULLBACK_CACHE_DIR", "").strip()
    if chosen.lower() == "off":
        return None
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        base = environ.get("XDG_CACHE_HOME", "")
        if os.path.isabs(base):
            return Path(base) / "pullback"
        return Path.home() / ".cache" / "pullback"
    except (RuntimeError, OSError):
        return None


def _distrust(status: os.stat_result) -> str | None:
    """Why a file of this status is not ours alone, or None. Windows has no such bits and is trusted."""
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return "other users may write to it (chmod go-w it)"
    return None


def _encode(name: str, payload: bytes, kind: str, meta: Mapping[str, Any]) -> bytes:
    text = json.dumps(dict(meta), sort_keys=True, ensure_ascii=True).encode()
    if len(text) > _MAX_META:
        raise ValueError(f"metadata of {len(text)} bytes: at most {_MAX_META}")
    head = _CHECKED.pack(_MAGIC, FORMAT_VERSION, KINDS.index(kind), len(text), len(payload), bytes.fromhex(name))
    checksum = hashlib.sha256(head)
    checksum.update(text)
    checksum.update(payload)
    return b"".join((head, checksum.digest(), text, payload))


def _header(data: bytes, name: str, size: int) -> tuple[str, int, int]:
    """(kind, bytes of metadata, bytes of payload) of a file of `size` bytes that should hold `name`."""
    if len(data) < _HEADER.size:
        raise _Damaged("truncated")
    magic, version, kind, meta_size, payload_size, stored, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != FORMAT_VERSION or kind >= len(KINDS):
        raise _Damaged("foreign or of another version")
    if stored.hex() != name:
        raise _Damaged("another key's entry")
    if meta_size > _MAX_META or _HEADER.size + meta_size + payload_size != size:
        raise _Damaged("truncated or extended")
    return KINDS[kind], meta_size, payload_size


def _decode(data: bytes, name: str) -> bytes:
    _, meta_size, _ = _header(data, name, len(data))
    checksum = hashlib.sha256(data[: _CHECKED.size])
    checksum.update(memoryview(data)[_HEADER.size :])
    if checksum.digest() != data[_CHECKED.size : _HEADER.size]:
        raise _Damaged("checksum")
    return data[_HEADER.size + meta_size :]


class KernelCache:
    """Payloads by key, in memory and, with a path, in that folder.

    The folder is created private (0700). It is refused, with one RuntimeWarning, if another user owns it or
    may write to it. On disk at most `max_bytes` and `max_files` stay: a sweep, at most hourly or after an
    eighth of that was written, removes the least recently used. All methods may be called from any thread and
    any number of processes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
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
        self._trusted: set[str] = set()
        self._warned = False
        self._written = [0, 0]
        self._problem: str | None = None
        self._root: Path | None = None
        if path is not None:
            self._root = self._open_root(Path(path).absolute())

    @property
    def path(self) -> Path | None:
        """The folder in use; None where the disk is off."""
        return self._root

    def get(self, key: str) -> bytes | None:
        """The payload of `key`, or None."""
        found = self.find(key)
        return None if found is None else found[0]

    def find(self, key: str) -> tuple[bytes, Origin] | None:
        """The payload of `key` and where it was, or None. Raises ValueError for a key that is no sha256."""
        _check_key(key)
        with self.lock:
            payload = self._memory.get(key)
            if payload is not None:
                self._memory.move_to_end(key)
                return payload, "memory"
        payload = self._read(key)
        if payload is None:
            return None
        self._remember(key, payload)
        return payload, "disk"

    def where(self, key: str) -> Origin | None:
        """Where `key` would be found, or None; nothing is read, moved or remembered."""
        _check_key(key)
        with self.lock:
            if key in self._memory:
                return "memory"
        on_disk = self._root is not None and self._entry_path(self._root, key).is_file()
        return "disk" if on_disk else None

    def put(self, key: str, payload: bytes, *, kind: Kind, meta: Mapping[str, Any] | None = None) -> None:
        """Stores `payload`, replacing what `key` held.

        `meta` is what `entries` will show: a small dict that JSON can hold. Raises ValueError for a bad key
        or kind or more than 64 KiB of metadata.
        """
        _check_key(key)
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r}: one of {', '.join(KINDS)}")
        data = _encode(key, payload, kind, meta or {})
        self._remember(key, payload)
        self._write(key, data)

    def get_or_make(self, key: str, make: Callable[[], bytes], *, kind: Kind, meta: Mapping[str, Any] | None = None) -> bytes:
        """The payload of `key`, made and stored if absent; threads that ask at once make it once."""
        payload = self.get(key)
        if payload is not None:
            return payload
        with self._makers.hold(key):
            payload = self.get(key)
            if payload is None:
                payload = make()
                self.put(key, payload, kind=kind, meta=meta)
            return payload

    def discard(self, key: str) -> None:
        """Forgets `key`, in memory and on disk."""
        _check_key(key)
        with self.lock:
            self._memory_bytes -= len(self._memory.pop(key, b""))
        if self._root is not None:
            _remove(self._entry_path(self._root, key))

    def entries(self) -> list[Entry]:
        """The entries on disk, most recently used first; unreadable ones are left out."""
        found = []
        for name, path in self._entry_files():
            with contextlib.suppress(OSError, _Damaged, ValueError):
                with _open_entry(path) as (file, status):
                    data = file.read(_HEADER.size + _MAX_META)
                kind, meta_size, size = _header(data, name, status.st_size)
                meta = json.loads(data[_HEADER.size : _HEADER.size + meta_size])
                found.append(Entry(key=name, kind=kind, size=size, modified=status.st_mtime, meta=meta))
        return sorted(found, key=lambda entry: (-entry.modified, entry.key))

    def verify(self) -> tuple[int, int]:
        """Reads every entry on disk and removes the bad ones; how many were (good, bad)."""
        good = bad = 0
        for name, path in self._entry_files():
            if self._read_file(path, name) is None:
                bad += 1
            else:
                good += 1
        return good, bad

    def clear(self) -> int:
        """Empties memory and disk; the number of entries that were on disk. Files not of this cache stay."""
        with self.lock:
            self._memory.clear()
            self._memory_bytes = 0
        removed = 0
        for _, path in self._entry_files():
            removed += _remove(path)
        for folder in self._folders():
            self._remove_temporaries(folder, older_than=0.0)
            with contextlib.suppress(OSError):
                folder.rmdir()
        if self._root is not None:
            _remove(self._root / _STAMP)
        return removed

    def info(self) -> dict[str, Any]:
        """The path (None where the disk is off), what is stored, the limits, the last problem."""
        count = size = 0
        for _, path in self._entry_files():
            with contextlib.suppress(OSError):
                size += path.lstat().st_size
                count += 1
        with self.lock:
            return {
                "path": None if self._root is None else str(self._root),
                "entries": count,
                "bytes": size,
                "max_entries": self._max_files,
                "max_bytes": self._max_bytes,
                "memory_entries": len(self._memory),
                "memory_bytes": self._memory_bytes,
                "problem": self._problem,
            }

    def _open_root(self, path: Path) -> Path | None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            link = path.lstat()
            reason = _distrust(link) if not stat.S_ISLNK(link.st_mode) else _distrust_link(link)
            status = path.stat()
            reason = reason or _distrust(status)
            if not stat.S_ISDIR(status.st_mode):
                reason = "it is not a folder"
        except OSError as error:
            self._problem = f"{path}: {error.strerror or error}"
            return None
        if reason is not None:
            self._refuse(path, reason)
            return None
        return path

    def _refuse(self, path: Path, reason: str) -> None:
        self._problem = f"{path}: {reason}"
        if not self._warned:
            self._warned = True
            warnings.warn(f"kernel cache {path} is not used: {reason}", RuntimeWarning, stacklevel=2)

    def _remember(self, name: str, payload: bytes) -> None:
        with self.lock:
            self._memory_bytes += len(payload) - len(self._memory.pop(name, b""))
            self._memory[name] = payload
            while self._memory_bytes > self._max_memory_bytes and self._memory:
                _, dropped = self._memory.popitem(last=False)
                self._memory_bytes -= len(dropped)

    @staticmethod
    def _entry_path(root: Path, name: str) -> Path:
        return root / name[:2] / (name + _SUFFIX)

    def _trusted_folder(self, folder: Path) -> bool:
        """Whether the entries of this subfolder may be used; asked once for each subfolder."""
        if folder.name in self._trusted:
            return True
        try:
            status = folder.lstat()
        except OSError:
            return False
        reason = _distrust(status) if stat.S_ISDIR(status.st_mode) else "it is not a folder"
        if reason is not None:
            self._refuse(folder, reason)
            return False
        self._trusted.add(folder.name)
        return True

    def _read(self, name: str) -> bytes | None:
        if self._root is None:
            return None
        path = self._entry_path(self._root, name)
        return self._read_file(path, name) if self._trusted_folder(path.parent) else None

    def _read_file(self, path: Path, name: str) -> bytes | None:
        """The payload, or None; a file that may not be used or is damaged is removed."""
        try:
            with _open_entry(path) as (file, status):
                if status.st_size > self._max_bytes:
                    raise _Damaged("larger than the whole cache may be")
                payload = _decode(file.read(), name)
        except _Damaged:
            _remove(path)
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                _remove(path)
            return None
        if abs(time.time() - status.st_mtime) > _DAY:
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    def _write(self, name: str, data: bytes) -> None:
        if self._root is None:
            return
        path = self._entry_path(self._root, name)
        temporary = path.parent / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(mode=0o700)
            if not self._trusted_folder(path.parent):
                return
            with os.fdopen(os.open(temporary, _WRITE_FLAGS, 0o600), "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError as error:
            self._problem = f"{path}: {error.strerror or error}"
            self._trusted.discard(path.parent.name)
            _remove(temporary)
            return
        with contextlib.suppress(OSError):
            self._sweep_if_due(self._root, len(data))

    def _sweep_if_due(self, root: Path, size: int) -> None:
        with self.lock:
            self._written[0] += size
            self._written[1] += 1
            wrote_much = self._written[0] * 8 > self._max_bytes or self._written[1] * 8 > self._max_files
            stamp = root / _STAMP
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
            self._remove_temporaries(folder, older_than=_HOUR)
        files: list[tuple[float, int, Path]] = []
        for _, path in self._entry_files():
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
            _remove(path)

    def _folders(self) -> list[Path]:
        if self._root is None:
            return []
        try:
            with os.scandir(self._root) as items:
                names = sorted(item.name for item in items if item.is_dir(follow_symlinks=False))
        except OSError:
            return []
        folders = [self._root / name for name in names if _FOLDER.fullmatch(name)]
        return [folder for folder in folders if self._trusted_folder(folder)]

    def _entry_files(self) -> Iterator[tuple[str, Path]]:
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for file in sorted(os.listdir(folder)):
                    match = _ENTRY.fullmatch(file)
                    if match and match[1].startswith(folder.name):
                        yield match[1], folder / file

    @staticmethod
    def _remove_temporaries(folder: Path, *, older_than: float) -> None:
        with contextlib.suppress(OSError):
            for file in os.listdir(folder):
                path = folder / file
                with contextlib.suppress(OSError):
                    if file.startswith(_TEMPORARY) and time.time() - path.lstat().st_mtime >= older_than:
                        path.unlink()


def _check_key(name: str) -> None:
    if not _KEY.fullmatch(name):
        raise ValueError(f"cache key {name!r}: a sha256 in lower-case hex was expected")


def _distrust_link(status: os.stat_result) -> str | None:
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return f"it is a symbolic link of user {status.st_uid}"
    return None


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _open_entry(path: Path) -> Iterator[tuple[Any, os.stat_result]]:
    """The open file and its status; follows no link, waits on no pipe, opens nothing others could write."""
    with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or _distrust(status) is not None:
            raise _Damaged("not a private file of this user")
        yield file, status


_default_lock = threading.Lock()
hold_over_fork(_default_lock)
_default: KernelCache | None = None


def default_cache() -> KernelCache:
    """The cache of this process; the environment is read at the first call."""
    global _default
    with _default_lock:
        if _default is None:
            _default = KernelCache(default_folder())
            hold_over_fork(_default.lock)
        return _default
