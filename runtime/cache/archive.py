"""Archives of cache entries: tar files that hold the files of entries and nothing else.

An entry is machine code that will run in this process. An archive is checked to be intact, not to be harmless:
import one only from an author you trust.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.cache.entry_format import NAME, SUFFIX, Damaged, Newer, decode


class BadArchive(ValueError):
    """Raised for a file that is no archive of entries readable by this version; nothing of it was imported."""


def write_archive(cache: KernelCache, path: Path) -> int:
    """Write the valid entries of a cache on disk to a tar file and return their number. Raises OSError."""
    temporary = path.with_name(f".new-{os.getpid()}-{os.urandom(8).hex()}")
    count = 0
    try:
        with tarfile.open(temporary, "x", format=tarfile.USTAR_FORMAT) as archive:
            for entry in sorted(cache.entries(), key=lambda entry: entry.key):
                data = cache.raw(entry.key)
                if data is not None:
                    member = tarfile.TarInfo(entry.key + SUFFIX)
                    member.size, member.mode, member.mtime = len(data), 0o600, int(entry.modified)
                    archive.addfile(member, io.BytesIO(data))
                    count += 1
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return count


def read_archive(cache: KernelCache, path: Path) -> int:
    """Store the entries of an archive in a cache and return their number. If one entry is invalid, none is stored. Raises
    BadArchive, OSError."""
    for _ in _members(path):
        pass
    count = 0
    for name, data in _members(path):
        cache.put_raw(name, data)
        count += 1
    return count


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the file contents of each entry of an archive, after checking it. Raises BadArchive."""
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                yield _entry(archive, member, path)
    except tarfile.TarError as error:
        raise BadArchive(f"{path}: {error}") from None


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> tuple[str, bytes]:
    match = NAME.fullmatch(member.name)
    file = archive.extractfile(member) if match and member.type == tarfile.REGTYPE and not member.pax_headers else None
    if match is None or file is None:
        raise BadArchive(f"{path}: {member.name!r} is no entry of the kernel cache")
    data = file.read()
    try:
        decode(data, match[1])
    except Damaged as error:
        raise BadArchive(f"{path}: {member.name} is damaged ({error})") from None
    except Newer as error:
        raise BadArchive(f"{path}: {member.name} is {error}, which this version cannot read") from None
    return match[1], data
