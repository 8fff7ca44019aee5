"""`pullback tune`: measure the candidates for plain matrix products on this machine and store the choices."""

from __future__ import annotations

import os

from pullback.codegen.cpu.matmul.shape_classes import CLASSES, NO_CHOICE, SUBJECT
from pullback.runtime.cache.cache import default_cache
from pullback.runtime.choices.choices import STATIC, VARIABLE, pinned
from pullback.runtime.choices.matmul import DTYPES
from pullback.runtime.libraries.symbols import blas_name
from pullback.runtime.program import tune_matmul
from pullback.runtime.threads.threads import get_num_threads


def load() -> float:
    """Return the average number of running processes over the last minute; 0 if unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def tune() -> int:
    """Measure plain matrix products, then print and store the choices; return 1 if they cannot be stored."""
    if default_cache().path is None:
        print("pullback: nothing can be remembered: the kernel cache is in memory alone (see `pullback doctor`)")
        return 1
    print(f"{blas_name()}, {get_num_threads()} threads")
    if (busy := load()) > 0.5:
        print(f"other processes are at work (load {busy:.1f}): measured in peace, near ties may fall the other way")
    count = 0
    for dtype in DTYPES:
        for position, choice in enumerate(tune_matmul.tuned(dtype)):
            subject = f"{SUBJECT} of {dtype}, {CLASSES[position].name} ({CLASSES[position]})"
            print(f"{subject}: {choice.chosen} ({choice.why})", flush=True)
            count += 1
    if not count:
        print(f"here {NO_CHOICE}")
        return 0
    print("processes that start from now on go by this; results may differ from earlier ones in their last bits")
    pin = pinned(SUBJECT)
    if pin is not None:
        print(f"but {VARIABLE} says {pin}: {'the written table' if pin == STATIC else 'that'} goes first")
    return 0
