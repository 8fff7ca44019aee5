"""Matrix products by the kernels of OpenBLAS that it does not choose for this processor.

NumPy's library is loaded once more for each: from a copy, since a path is loaded once a process, with the name of the kernels
in the variable that the library reads when it is loaded. So all kernels take turns in one process.
"""

import ctypes
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case
from pullback.runtime.compile.machine import find_host

Call = Callable[[], Any]
ROWS, PLAIN = 101, 111
"""CBLAS_ORDER and CBLAS_TRANSPOSE of arrays in C's order."""
LEVELS = {"SkylakeX": "avx512", "Haswell": "avx2"}
"""The vector extension that each set of kernels needs: the library runs the selected set on any processor."""
SIZES = ctypes.c_int64
POINTER = ctypes.c_void_p


def prepare_avx512(case: Case, arguments: Arguments) -> Call:
    return prepare("SkylakeX", case, arguments)


def prepare_avx2(case: Case, arguments: Arguments) -> Call:
    return prepare("Haswell", case, arguments)


def prepare(core: str, case: Case, arguments: Arguments) -> Call:
    if case.workload != "matmul":
        raise NotImplementedError("no product alone")
    x, y = arguments
    return functools.partial(product, gemm(core, x.dtype.char), x, y)


def product(run: Any, x: Any, y: Any) -> Any:
    (m, k), n = x.shape, y.shape[1]
    out = np.empty((m, n), x.dtype)
    run(ROWS, PLAIN, PLAIN, m, n, k, 1.0, x.ctypes.data, k, y.ctypes.data, n, 0.0, out.ctypes.data, n)
    return out


@functools.cache
def gemm(core: str, char: str) -> Any:
    """CBLAS's product for float32 ("f") or float64 ("d")."""
    kind, scalar = {"f": ("s", ctypes.c_float), "d": ("d", ctypes.c_double)}[char]
    run = getattr(library(core), f"scipy_cblas_{kind}gemm64_")
    run.argtypes = [ctypes.c_int] * 3 + [SIZES] * 3 + [scalar] + [POINTER, SIZES] * 2 + [scalar] + [POINTER, SIZES]
    run.restype = None
    return run


@functools.cache
def library(core: str) -> ctypes.CDLL:
    """A copy of NumPy's OpenBLAS that runs the kernels of that name. Raises NotImplementedError if there is none, or this
    processor cannot run them."""
    try:
        find_host(LEVELS[core])
    except ValueError as error:
        raise NotImplementedError(f"OpenBLAS for {core}: {str(error).partition(': ')[2]}") from error
    position = Path(np.__file__).parent.parent / "numpy.libs"
    result = sorted(position.glob("libscipy_openblas64_*.so"))
    if not result:
        raise NotImplementedError("NumPy brings no OpenBLAS of its own")
    before = os.environ.get("OPENBLAS_CORETYPE")
    os.environ["OPENBLAS_CORETYPE"] = core
    try:
        with tempfile.TemporaryDirectory() as folder:
            loaded = ctypes.CDLL(shutil.copy(result[0], Path(folder) / f"openblas_{core}.so"))
    finally:
        if before is None:
            del os.environ["OPENBLAS_CORETYPE"]
        else:
            os.environ["OPENBLAS_CORETYPE"] = before
    said = loaded.scipy_openblas_get_corename64_
    said.restype = ctypes.c_char_p
    if said().decode() != core:
        raise NotImplementedError(f"OpenBLAS runs {said().decode()} here, not {core}")
    return loaded
