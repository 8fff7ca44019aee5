"""Native functions by name, called through their addresses."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from pullback.runtime.libraries.symbols import MissingSymbol, address, blas_get_threads, blas_set_threads, signature, ufunc_loop


def special(name: str, arguments: int) -> Callable[..., float]:
    assert signature(f"special.{name}") == f"double ({'double, ' * arguments}int __pyx_skip_dispatch)"
    return ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * arguments, ctypes.c_int)(address(f"special.{name}"))


def test_dgemm() -> None:
    assert signature("blas.dgemm").startswith("void (char *, char *, int *, int *, int *, double *, double *")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 7)), rng.normal(size=(7, 3))
    c = np.zeros((5, 3))
    pointer, count = ctypes.c_void_p, ctypes.c_int
    dgemm = ctypes.CFUNCTYPE(None, *[pointer] * 13)(address("blas.dgemm"))
    letter, one, zero = ctypes.c_char(b"N"), ctypes.c_double(1), ctypes.c_double(0)
    m, n, k = count(3), count(5), count(7)
    by = ctypes.byref
    # Row-major c = a b is column-major c' = b' a'.
    dgemm(
        by(letter), by(letter), by(m), by(n), by(k), by(one), b.ctypes.data, by(m), a.ctypes.data, by(k),
        by(zero), c.ctypes.data, by(m),
    )  # fmt: skip
    np.testing.assert_allclose(c, a @ b, rtol=1e-14, atol=1e-14)


LINALG_LATER = """
import sys
from pullback.runtime.libraries.symbols import address
found = {name: address(name) for name in ("blas.dgemm", "lapack.dpotrf")}
assert not [name for name in sys.modules if name.startswith("scipy.linalg")]
import ctypes, scipy.linalg
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
for name, at in found.items():
    library, _, function = name.partition(".")
    module = getattr(scipy.linalg, "cython_" + library)
    assert sys.modules[module.__name__] is module
    capsule = module.__pyx_capi__[function]
    signature = repr(capsule).split('"')[1].encode()
    assert pointer(capsule, signature) == at, name
print(scipy.linalg.cholesky([[4.0]])[0, 0])
"""


def test_scipy_linalg_is_imported_by_the_user_alone() -> None:
    """Its import takes longer than ours; when it comes later, its modules are those whose functions we took."""
    done = subprocess.run([sys.executable, "-c", LINALG_LATER], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr


def test_dpotrf_reports_its_info() -> None:
    assert signature("lapack.dpotrf") == "void (char *, int *, double *, int *, int *)"
    potrf = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(address("lapack.dpotrf"))
    letter, size, info = ctypes.c_char(b"U"), ctypes.c_int(2), ctypes.c_int(-1)
    by = ctypes.byref
    good = np.array([[4.0, 2.0], [2.0, 3.0]])
    potrf(by(letter), by(size), good.ctypes.data, by(size), by(info))
    assert info.value == 0
    np.testing.assert_allclose(np.tril(good), np.linalg.cholesky([[4.0, 2.0], [2.0, 3.0]]), rtol=1e-15)
    bad = np.array([[1.0, 2.0], [2.0, 1.0]])
    potrf(by(letter), by(size), bad.ctypes.data, by(size), by(info))
    assert info.value == 2


@pytest.mark.parametrize("name", ["gammaln", "psi", "erf", "erfc", "expit", "i0", "ndtri", "zetac"])
def test_special_of_one_argument(name: str) -> None:
    function = special(name, 1)
    for x in (0.1, 0.5, 0.9):
        assert function(x, 0) == getattr(scipy.special, name)(x)
        assert function(x, 1) == function(x, 0), "the last argument is not read"


@pytest.mark.parametrize("name", ["gammainc", "beta", "xlogy", "kn"])
def test_special_of_two_arguments(name: str) -> None:
    assert special(name, 2)(2.0, 3.0, 0) == pytest.approx(float(getattr(scipy.special, name)(2.0, 3.0)), rel=1e-15)


def test_special_through_pointers() -> None:
    assert signature("special.fresnel") == "void (double, double *, double *)"
    fresnel = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p)(address("special.fresnel"))
    s, c = ctypes.c_double(), ctypes.c_double()
    fresnel(0.7, ctypes.byref(s), ctypes.byref(c))
    assert (s.value, c.value) == tuple(map(float, scipy.special.fresnel(0.7)))


def test_libm() -> None:
    tan = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address("libm.tan"))
    assert tan(0.3) == math.tan(0.3)
    tanf = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(address("libm.tanf"))
    assert tanf(0.3) == pytest.approx(math.tan(0.3), rel=1e-6)
    assert signature("libm.erf") == "double (double)"
    assert signature("libm.atan2f") == "float (float, float)"


def call_loop(name: str, types: str, *inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    loop = ufunc_loop(name, types)
    out = np.empty_like(inputs[0], dtype=types[-1])
    operands = [*inputs, out]
    args = (ctypes.c_void_p * len(operands))(*[operand.ctypes.data for operand in operands])
    steps = (ctypes.c_ssize_t * len(operands))(*[operand.strides[0] for operand in operands])
    count = ctypes.c_ssize_t(len(out))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(loop.function)
    function(args, ctypes.byref(count), steps, loop.data or None)
    return out


def test_ufunc_loops() -> None:
    x = np.linspace(1.5, 9.0, 13)
    q = np.linspace(0.5, 3.0, 13)
    np.testing.assert_array_equal(call_loop("scipy.special._ufuncs._zeta", "dd->d", x, q), scipy.special.zeta(x, q))
    single = x.astype(np.float32)
    np.testing.assert_array_equal(call_loop("scipy.special.gammaln", "f->f", single), scipy.special.gammaln(single))
    np.testing.assert_array_equal(call_loop("numpy.tan", "d->d", x), np.tan(x))
    for name, types in (
        ("numpy.tan", "i->i"),
        ("numpy.sum", "d->d"),
        ("numpy.nosuch", "d->d"),
        ("tan", "d->d"),
    ):
        with pytest.raises(MissingSymbol, match=name):
            ufunc_loop(name, types)


@pytest.mark.parametrize(
    "name", ["blas.nosuch", "special.nosuch", "special.spherical_jn", "libm.nosuch", "libm.", "dgemm", "c.f"]
)
def test_missing(name: str) -> None:
    with pytest.raises(MissingSymbol) as raised:
        address(name)
    assert isinstance(raised.value, KeyError)
    assert name.rpartition(".")[2] in str(raised.value) and not str(raised.value).startswith('"')


def test_blas_threads() -> None:
    before = blas_get_threads()
    if before is None:
        assert not blas_set_threads(1)
        return
    try:
        assert blas_set_threads(1) and blas_get_threads() == 1
    finally:
        blas_set_threads(before)
    with pytest.raises(ValueError, match="at least 1"):
        blas_set_threads(0)
