"""The version of this package that the process runs: a hash of the sources that decide what is generated, as they were
imported.

Modules are imported at any time of a process, many at the first compile, and their files may be replaced meanwhile: by an
upgrade of an installation, by git in an editable one. Therefore the sizes and times of all these files are noted when
``pullback`` begins to be imported, before any other module of it, and compared again whenever a module was imported since. As
long as nothing differs, every module that runs was read from the files that the stamp hashes. Once something differs,
``changed`` describes it.

A file's times are the time of its last modification, which tools such as ``rsync -t`` and ``cp -p`` restore, and the time of
its last change of status, which the system sets by its clock and no tool can restore. The latter also changes when the file
gets another name, as from an installer that links the files of its cache into each environment, or another mode. If that time
alone differs, the content is hashed again, and the files count as unchanged if the hash is the same.

Python runs a ``.pyc`` file in place of its source if that has the size and the time, in whole seconds, that the ``.pyc`` file
notes. A ``.pyc`` file that was not written after the last change of its source may be compiled from an older text: its own
bytes are then part of the stamp, unless a process has noted, while the order was clear, that these bytes belong to these
sources.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import itertools
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

PACKAGES = ("codegen", "ir", "runtime")
MODULES = (os.path.join("programs", "pipeline.py"), os.path.join("pullback", "programs", "pipeline.py"))
"""A module of the public package that also decides what is generated: its paths in an installation and in a source tree."""
_OURS = (*(f"pullback.{package}" for package in PACKAGES), "pullback.programs.pipeline")
INTERVAL, SELDOM = 0.05, 1.0
"""The longest time in seconds between two checks of all files (0.5 to 2 ms each): before disk writes and before disk reads.
Correctness does not depend on them: files of modules imported since the last check are checked each time."""
RESOLUTION = 2_000_000_000
"""In nanoseconds: two changes of a file within this span may leave the same time. It is the resolution of FAT and NFS 2, the
coarsest file systems."""

Find = Callable[[str], bytes | None]
Keep = Callable[[str, bytes], None]


class Times(NamedTuple):
    """The part of a file's status that depends on its content: bytes, and the nanoseconds of the last modification and status
    change."""

    size: int
    modified: int
    changed: int


Files = Mapping[str, Times]


@functools.cache
def _base() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def file_times() -> Files:
    """Return the times of the files that decide what is generated, by path. Empty if modules come from no files, as in a
    frozen program.

    Files and folders that do not exist are left out. Raises OSError for any other failure.
    """
    base = _base()
    archive = getattr(globals().get("__loader__"), "archive", None)
    times: dict[str, Times] = {}
    if archive is not None:
        _add_file(archive, times)
    else:
        for package in PACKAGES:
            _add_folder(os.path.join(base, package), times)
        for module in MODULES:
            _add_file(os.path.join(base, module), times)
            _add_file(os.path.join(base, module + "c"), times)
    return times


def _add_folder(folder: str, times: dict[str, Times]) -> None:
    try:
        with os.scandir(folder) as items:
            for item in items:
                if item.name.endswith((".py", ".pyc")):
                    times[item.path] = _times(item.stat())
                elif item.name != "__pycache__" and item.is_dir():
                    _add_folder(item.path, times)
    except (FileNotFoundError, NotADirectoryError):
        return


def _add_file(path: str, times: dict[str, Times]) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        times[path] = _times(os.stat(path))


def _times(status: os.stat_result) -> Times:
    return Times(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Compiled(NamedTuple):
    """A ``.pyc`` file and its source."""

    path: str
    source: str
    times: Times


class Sources:
    """The files as they were at construction, and the check that they are unchanged."""

    def __init__(self) -> None:
        self.begun = time.time_ns()
        self.changed: str | None = None
        try:
            self.files = file_times()
            if not self.files:
                self.changed = f"pullback was imported from no files whose version could be told ({_base()})"
        except OSError as error:
            self.files = {}
            self.changed = f"pullback's files could not be looked at when it was imported: {error}"
        self._now = self.files
        """The files when they were last seen to be the same, other names and modes aside."""
        self._content: str | None = None
        """The hash of the sources, once they were read while nothing differed."""
        self._modules = 0
        self._seen: set[str] = set()
        self._last, self._checked = time.monotonic(), self.begun

    def are_as_imported(self, within: float = SELDOM) -> bool:
        """Return whether all modules imported so far came from the files as they were at construction.

        The replacement of a file after its module's import is noticed too, at the latest ``within`` seconds later.
        """
        if self.changed is not None:
            return False
        module_count, names, begun = len(sys.modules), self._seen, time.time_ns()
        if module_count != self._modules:
            names = {name for name in list(sys.modules) if name.startswith(_OURS)}
        try:
            new = names - self._seen
            if time.monotonic() - self._last > within or not all(map(self._is_unchanged, new)):
                files = file_times()
                if files != self._now and not self._are_linked(files, new):
                    self.changed = _difference(self._now, files)
                    return False
                self._now, self._last = files, time.monotonic()
        except OSError:
            return False  # for now: for example, file descriptors may be available again later
        self._modules, self._seen, self._checked = module_count, names, begun
        return True

    def _are_linked(self, files: Files, new: Iterable[str]) -> bool:
        """Return whether files with other times still have the stamped content, and the modules imported since the last check
        had it too. Raises OSError."""
        before = self._now
        if self._content is None or files.keys() != before.keys():
            return False
        if any(times[:2] != before[path][:2] for path, times in files.items()):
            return False
        for path in map(_origin, new):
            # Between the two checks the file may have been another one for a while.
            if path not in files or (files[path] != before[path] and files[path].changed > self._checked - RESOLUTION):
                return False
        return _content_hash(files) == self._content and file_times() == files

    def _is_unchanged(self, module: str) -> bool:
        """Return whether the file of a module is unchanged; False too if the module has no file of its own, as in an archive.
        Raises OSError."""
        path = _origin(module)
        return path in self._now and _times(os.stat(path)) == self._now[path]

    @property
    def is_settled(self) -> bool:
        """Whether every file is old enough that a further change must alter its times."""
        return max(times.changed for times in self.files.values()) < self.begun - RESOLUTION

    def stamp(self, find: Find, keep: Keep, *, is_kept: bool = True) -> str | None:
        """Return the hash of the sources that this process runs; None if they are no longer on disk.

        ``find`` and ``keep`` read and store hashes that other processes computed from the same files. If nothing ``is_kept``,
        a hash of the paths and times is returned instead, and the files are not read.
        """
        if not self.are_as_imported():
            return None
        try:
            compiled = list(_compiled(self.files))
            doubtful = [each for each in compiled if each.times.changed <= self.files[each.source].changed]
            doubtful = [each for each in doubtful if _is_run(each, self.files)]
            name = _times_hash({**self.files, **{each.path: each.times for each in doubtful}}, len(compiled))
            if self.is_settled:
                if not is_kept:
                    return name
                known = (find(name) or b"").decode().split()
                if len(known) == 2:
                    stamp, self._content = known
                    return stamp
            content = _content_hash(self.files)
            stamp = self._with_compiled(content, compiled, doubtful, find, keep)
        except OSError:
            return None
        if not self.are_as_imported(within=0.0):
            return None
        self._content = content
        if self.is_settled:
            keep(name, f"{stamp} {content}".encode())
        return stamp

    def _with_compiled(
        self, stamp: str, compiled: Sequence[Compiled], doubtful: Sequence[Compiled], find: Find, keep: Keep
    ) -> str:  # fmt: skip
        """Return the stamp of the sources, or the hash of it and of the compiled ones that may be of others. Raises OSError."""
        # Archives and images of containers change the times of all files. Who saw them before noted what belongs together.
        pairs = _hash("compiled from", stamp)
        known = set((find(pairs) or b"").decode().split())
        if doubtful:
            foreign = [text for text in _contents(each.path for each in doubtful) if _hash(text) not in known]
            return _hash("compiled", stamp, *foreign) if foreign else stamp
        now = set(map(_hash, _contents(each.path for each in compiled)))
        if self.is_settled and not now <= known:
            keep(pairs, "\n".join(sorted(known | now)).encode())
        return stamp


def _origin(module: str) -> str:
    """Return the path of a module's file."""
    return str(getattr(getattr(sys.modules.get(module), "__spec__", None), "origin", None))


def _content_hash(files: Files) -> str:
    """Return the hash of the sources. Raises OSError."""
    return _hash("sources", *_contents(files))


def _difference(before: Files, after: Files) -> str:
    path = next(path for path in (*before, *after) if before.get(path) != after.get(path))
    return f"{path} is not as it was when this process imported pullback; restart Python to run what is installed"


def _relative(path: str) -> str:
    """Return the name of a file that is the same in an installation and in a source tree."""
    name = path.removeprefix(_base() + os.sep)
    return os.path.basename(path) if name == path else name.replace(os.sep, "/").removeprefix("pullback/")


def _compiled(files: Files) -> Iterator[Compiled]:
    """Yield the ``.pyc`` files that Python would consider in place of sources."""
    by_folder: dict[str, list[str]] = {}
    for path in files:
        if path.endswith(".py"):
            by_folder.setdefault(os.path.dirname(path), []).append(path)
    for folder, paths in by_folder.items():
        try:
            example = importlib.util.cache_from_source(os.path.join(folder, "a.py"))
            with os.scandir(os.path.dirname(example)) as items:
                items_by_name = {item.name: item for item in items}
        except (FileNotFoundError, NotADirectoryError, NotImplementedError):
            continue
        ending = os.path.basename(example).removeprefix("a")
        for path in paths:
            item = items_by_name.get(os.path.basename(path).removesuffix(".py") + ending)
            if item is not None:
                yield Compiled(item.path, path, _times(item.stat()))


def _is_run(compiled: Compiled, files: Files) -> bool:
    """Return whether Python would run a ``.pyc`` file, according to its header, for its source with this size and time."""
    with open(compiled.path, "rb") as file:
        head = file.read(16)
    if head[:4] != importlib.util.MAGIC_NUMBER:
        return False
    if int.from_bytes(head[4:8], "little"):
        return True  # it has a hash of the source, which Python may be configured not to check
    source = files[compiled.source]
    seconds, rest = divmod(source.modified, 10**9)
    noted = int(seconds + 1e-9 * rest) & 0xFFFFFFFF, source.size & 0xFFFFFFFF
    return (int.from_bytes(head[8:12], "little"), int.from_bytes(head[12:16], "little")) == noted


def _times_hash(files: Files, compiled: int) -> str:
    """Return a hash of paths and times, and of the number of ``.pyc`` files."""
    files = dict(sorted(files.items()))
    times = struct.pack(f"<{3 * len(files)}q", *itertools.chain.from_iterable(files.values()))
    return _hash("times of files", *files, times.hex(), str(compiled))


def _contents(paths: Iterable[str]) -> Iterator[str]:
    """Yield the name and hash of each file, in order."""
    for path in sorted(paths, key=_relative):
        yield f"{_relative(path)} {_digest(path)}"


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


imported = Sources()
"""The sources of this process. This module is the first of the package to be imported."""
