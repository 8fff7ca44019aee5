"""Who does plain matrix products on this machine: SciPy's BLAS or kernels of our own, for each class of shapes and each dtype.

A written table says so (``product_classes``), unless ``pullback tune`` has measured it here, which the kernel cache remembers,
or ``PULLBACK_CHOICES`` pins it. It is settled when a process first needs it, and stays until the process ends: calls give the
same bits. Nothing is measured by the way: near ties would fall by the load of the moment, and with them the last bits of results,
in each process whose cache is not kept.
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


def bits(dtype: str) -> int:
    """What kernels are told of a dtype, "f32" or "f64"."""
    return sum(1 << k for k, each in enumerate(settled(dtype)) if each.chosen == OURS)


def settled(dtype: str) -> tuple[Choice, ...]:
    """The choice for each of ``CLASSES``."""
    with _lock:
        if dtype not in _settled:
            _settled[dtype] = tuple(
                choices.known(key_of(dtype, k), CANDIDATES, default_of(dtype, k)) for k in range(len(CLASSES))
            )
        return _settled[dtype]


def are_settled() -> tuple[str, ...]:
    """The dtypes that this process has needed so far."""
    return tuple(_settled)


def forget() -> None:
    """Settle anew what is asked for next; kernels that are bound keep what they were told."""
    with _lock:
        _settled.clear()


def default_of(dtype: str, position: int) -> str:
    """Who does a class where that is neither pinned nor measured."""
    return static_choice(dtype, position, blas_core(), default_engine().host().vector_bytes)


def key_of(dtype: str, position: int) -> Key:
    """What a choice is about: versions and the processor may decide it, the number of threads must not."""
    return Key(subject=SUBJECT, details=(dtype, CLASSES[position].name, _class_text(position), *_machine()))


def _class_text(position: int) -> str:
    return str(CLASSES[position]).replace(", ", " and ")


@functools.cache
def _machine() -> tuple[str, ...]:
    host = default_engine().host()
    words = f"{host.core} ({host.cpu}), vectors of {host.vector_bytes} bytes, {host.cache >> 10} KiB"
    return words, blas_name(), f"our sources {generator_stamp()[:12]}"
