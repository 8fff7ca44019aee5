"""Whether plain matrix products run in SciPy's BLAS or in generated kernels on this machine, by shape class and dtype.

A static table decides (``shape_classes``), unless ``pullback tune`` has measured the choice here, which the kernel cache
remembers, or ``PULLBACK_CHOICES`` pins it. It is settled when a process first needs it, and stays until the process ends, so
that calls give the same bits. Nothing is measured implicitly: near ties would be decided by the momentary load, and with them
the last bits of results, in each process whose cache is not kept.
"""

from __future__ import annotations

import functools
import threading

from pullback.codegen.cpu.matmul.shape_classes import CLASSES, LIBRARY, OURS, SUBJECT, static_choice
from pullback.runtime.cache.cache import generator_stamp
from pullback.runtime.choices.choices import Choice, Key, choices
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.libraries.symbols import blas_core, blas_name
from pullback.runtime.process.fork import hold_over_fork

DTYPES = ("f32", "f64", "c64", "c128")
CANDIDATES = (OURS, LIBRARY)

_lock = threading.Lock()
hold_over_fork(_lock)
_settled: dict[str, tuple[Choice, ...]] = {}


def generated_mask(dtype: str) -> int:
    """Return the bit mask passed to kernels for a dtype: bit k is set if shape class k uses generated kernels."""
    return sum(1 << k for k, each in enumerate(settled(dtype)) if each.chosen == OURS)


def settled(dtype: str) -> tuple[Choice, ...]:
    """Return the choice for each of ``CLASSES``."""
    with _lock:
        if dtype not in _settled:
            _settled[dtype] = tuple(
                choices.known(key_of(dtype, k), CANDIDATES, default_of(dtype, k)) for k in range(len(CLASSES))
            )
        return _settled[dtype]


def settled_dtypes() -> tuple[str, ...]:
    """Return the dtypes whose choices this process has needed so far."""
    return tuple(_settled)


def forget() -> None:
    """Drop the settled choices, so that later requests settle them anew; kernels that are bound keep the mask they were given."""
    with _lock:
        _settled.clear()


def default_of(dtype: str, position: int) -> str:
    """Return the candidate used for a shape class that is neither pinned nor measured."""
    return static_choice(dtype, position, blas_core(), default_engine().host().vector_bytes)


def key_of(dtype: str, position: int) -> Key:
    """Return the key of a choice. It holds the versions and the processor, which may decide it, and not the number of threads,
    which must not."""
    return Key(subject=SUBJECT, details=(dtype, CLASSES[position].name, _class_text(position), *_machine()))


def _class_text(position: int) -> str:
    return str(CLASSES[position]).replace(", ", " and ")


@functools.cache
def _machine() -> tuple[str, ...]:
    host = default_engine().host()
    words = f"{host.core} ({host.cpu}), vectors of {host.vector_bytes} bytes, {host.cache >> 10} KiB"
    return words, blas_name(), f"our sources {generator_stamp()[:12]}"
