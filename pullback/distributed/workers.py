"""What a worker of a cluster says about itself as a compiler, and its part in compiling each kernel once.

Workers of one *kind* have the same sources of pullback, processor and libraries, so that keys of the kernel cache are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.programs.cache_info import cache_info
from pullback.runtime.cache.cache import default_cache, generator_stamp
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.compile.key_inputs import deciders
from pullback.version import __version__

Kind = tuple[str, ...]
"""What decides the keys and the code of a worker: version, sources, processor, and the other inputs of keys."""


def kind_of_worker() -> Kind:
    """Return the kind of this process."""
    host = default_engine().host()
    return __version__, generator_stamp(), f"{host.triple} {host.cpu} {host.features}", *deciders(host)


def built_here(build: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """Call a function, and return the number of kernels that it compiled."""
    before = cache_info().compiles
    build(*arguments)
    return cache_info().compiles - before


def entry_keys() -> list[str]:
    """Return the keys of the cache entries that this process has read or made."""
    return default_cache().known()


def lacking(keys: Sequence[str]) -> list[str]:
    """Return the keys of which this process has no entry, in memory or in its folders."""
    cache = default_cache()
    return [key for key in keys if cache.where(key) is None]


def entries_of(keys: Sequence[str]) -> dict[str, bytes]:
    """Return the files of entries by key; entries that are not on disk are left out."""
    files = {key: default_cache().raw(key) for key in keys}
    return {key: data for key, data in files.items() if data is not None}


def store_entries(files: Mapping[str, bytes]) -> None:
    """Store files of entries in the cache of this process."""
    for key, data in files.items():
        default_cache().put_raw(key, data)
