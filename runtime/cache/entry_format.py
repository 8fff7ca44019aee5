"""The file of one cache entry: a header with version, key, sizes and checksum, then metadata as JSON, then the payload.

A read returns exactly what was written under the key, or fails. Nothing is unpickled or evaluated.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pullback.ir.core.records import dataclass

Kind = Literal["object", "text", "cubin", "program", "choice"]

KINDS: tuple[str, ...] = get_args(Kind)
FORMAT_VERSION = 2
SUFFIX = ".kernel"
NAME = re.compile(r"([0-9a-f]{64})" + re.escape(SUFFIX))

_MAGIC = b"pullback"
# magic, format version, kind, bytes of metadata, bytes of payload, key; the SHA-256 of everything else follows
_CHECKED = struct.Struct("<8sHHIQ32s")
_HEADER = struct.Struct(_CHECKED.format + "32s")
MAX_META = 1 << 16
HEAD = _HEADER.size + MAX_META
"""The largest offset of the payload in a file, in bytes."""

_KEY = re.compile(r"[0-9a-f]{64}")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | FLAGS


class Damaged(Exception):
    """Raised for a file that this cache would not have written."""


class Newer(Exception):
    """Raised for a file written in a later format version."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One stored payload: ``size`` is the payload's in bytes, ``modified`` the Unix time of its last use, accurate to a day."""

    key: str
    kind: str
    size: int
    modified: float
    meta: Mapping[str, Any]


def check_key(name: str) -> None:
    """Raise ValueError if ``name`` is no cache key."""
    if not _KEY.fullmatch(name):
        raise ValueError(f"cache key {name!r}: a sha256 in lower-case hex was expected")


def encode(name: str, payload: bytes, kind: str, meta: Mapping[str, Any]) -> bytes:
    """Return the bytes of an entry's file. Raises ValueError for an unknown kind and for more than 64 KiB of metadata."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}: one of {', '.join(KINDS)}")
    text = json.dumps(dict(meta), sort_keys=True, ensure_ascii=True).encode()
    if len(text) > MAX_META:
        raise ValueError(f"metadata of {len(text)} bytes: at most {MAX_META}")
    head = _CHECKED.pack(_MAGIC, FORMAT_VERSION, KINDS.index(kind), len(text), len(payload), bytes.fromhex(name))
    checksum = hashlib.sha256(head)
    checksum.update(text)
    checksum.update(payload)
    return b"".join((head, checksum.digest(), text, payload))


def header(data: bytes, name: str, size: int) -> tuple[str, int, int]:
    """Return (kind, bytes of metadata, bytes of payload) from ``data``, the beginning of a file of ``size`` bytes that should
    hold the key ``name``. Raises Damaged, Newer."""
    if len(data) < _HEADER.size:
        raise Damaged("truncated")
    magic, version, kind, meta_size, payload_size, stored, _ = _HEADER.unpack_from(data)
    if magic == _MAGIC and version > FORMAT_VERSION:
        raise Newer(f"of version {version}")
    if magic != _MAGIC or version != FORMAT_VERSION or kind >= len(KINDS):
        raise Damaged("foreign or of another version")
    if stored.hex() != name:
        raise Damaged("another key's entry")
    if meta_size > MAX_META or _HEADER.size + meta_size + payload_size != size:
        raise Damaged("truncated or extended")
    return KINDS[kind], meta_size, payload_size


def described(data: bytes, name: str, size: int, modified: float) -> Entry:
    """Return the Entry that the beginning of a file describes. Raises Damaged, Newer."""
    kind, meta_size, payload_size = header(data, name, size)
    try:
        meta = json.loads(data[_HEADER.size : _HEADER.size + meta_size])
    except ValueError:
        raise Damaged("metadata that is no JSON") from None
    if not isinstance(meta, dict):
        raise Damaged("metadata that is no dict")
    return Entry(key=name, kind=kind, size=payload_size, modified=modified, meta=meta)


def decode(data: bytes, name: str) -> bytes:
    """Return the payload of a complete file. Raises Damaged, Newer."""
    _, meta_size, _ = header(data, name, len(data))
    checksum = hashlib.sha256(data[: _CHECKED.size])
    checksum.update(memoryview(data)[_HEADER.size :])
    if checksum.digest() != data[_CHECKED.size : _HEADER.size]:
        raise Damaged("checksum")
    return data[_HEADER.size + meta_size :]


def distrust(status: os.stat_result, *, trusts_root: bool = False) -> str | None:
    """Return why a file with this status is not exclusively this user's (or root's, if ``trusts_root``), or None. Windows has
    no such permission bits; its files are trusted."""
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid != os.geteuid() and not (trusts_root and status.st_uid == 0):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return "other users may write to it (chmod go-w it)"
    return None


@contextlib.contextmanager
def open_entry(path: Path, *, trusts_root: bool = False) -> Iterator[tuple[Any, os.stat_result]]:
    """Open a file and yield it with its status. Symbolic links are not followed, pipes do not block, and a file that other
    users may write to is refused.

    Raises Damaged, OSError.
    """
    with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or distrust(status, trusts_root=trusts_root) is not None:
            raise Damaged("not a private file of this user")
        yield file, status
