"""Addresses of native functions by dotted name: BLAS, LAPACK, special functions, libm and ufunc loops.

What depends on the ABI of Python, NumPy, SciPy or the C library is here alone. An address is handed out only
together with a signature that was read from, or checked against, the library itself. Nothing here changes the
process, except `blas_set_threads`, which says so.

"blas.dgemm" and "lapack.dpotrf" come from `scipy.linalg.cython_blas` and `cython_lapack`: Fortran calls,
every argument a pointer, 32-bit integers. "special.psi" comes from `scipy.special.cython_special`, the
variant of doubles; a function of these that returns a value takes one more argument last, the int
`__pyx_skip_dispatch`, which it does not read (pass 0), while those that return through pointers do not.
"libm.tan" is the C library's, as are "c.realloc", "c.free" and "c.clock". "python.PyThread_get_thread_ident" is Python's.
"sort.float64" and "argsort.float64" are NumPy's; see `sorts`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

import numpy as np

from pullback.runtime.libraries import numpy_sorts as sorts

_MODULES = {
    "blas": "scipy.linalg.cython_blas",
    "lapack": "scipy.linalg.cython_lapack",
    "special": "scipy.special.cython_special",
}

_UNARY = (
    "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor lgamma log log10 "
    "log1p log2 logb nearbyint rint round sin sinh sqrt tan tanh tgamma trunc"
)
_BINARY = "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder"
_LIBM = {
    name + suffix: f"{scalar} ({', '.join([scalar] * arguments)})"
    for names, arguments in ((_UNARY, 1), (_BINARY, 2))
    for name in names.split()
    for scalar, suffix in (("double", ""), ("float", "f"))
}

_PLAIN_C = {
    "c.realloc": "void * (void *, size_t)",
    "c.free": "void (void *)",
    "c.clock": "clock_t (void)",
    "python.PyThread_get_thread_ident": "unsigned long (void)",
}

_LINALG_SCALAR = re.compile(r"__pyx_t_5scipy_6linalg_\d+cython_(?:blas|lapack)_([sdcz])\b")
_SCALARS = {"s": "float", "d": "double", "c": "float complex", "z": "double complex"}
_FUSED = r"__pyx_fuse_\d+(?:_\d+)*"
_SKIP_DISPATCH = "int __pyx_skip_dispatch"


class MissingSymbol(KeyError):
    """No native function of that name in the installed libraries."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True)
class UfuncLoop:
    """A ufunc's inner loop: the addresses in `function(char **args, intp *n, intp *steps, void *data)`."""

    function: int
    data: int
    types: str


def address(name: str) -> int:
    """The address of a native function, such as "blas.dgemm". Raises MissingSymbol."""
    return _resolve(name)[0]


def signature(name: str) -> str:
    """Its C signature, such as "double (double, int __pyx_skip_dispatch)". Raises MissingSymbol."""
    return _resolve(name)[1]


@functools.cache
def ufunc_loop(name: str, types: str) -> UfuncLoop:
    """The loop of the ufunc `name`, such as "scipy.special.gammaln", for types such as "f->f".

    A loop serves whole arrays, and what `cython_special` lacks: variants of float32, Hurwitz's zeta (the
    ufunc "scipy.special._ufuncs._zeta"; the public name is a Python function). Its address is read from the
    ufunc object, whose public layout is checked against what the ufunc says of itself. Raises MissingSymbol
    for an unknown name or types, and where the check fails.
    """
    module, _, attribute = name.rpartition(".")
    try:
        ufunc = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise MissingSymbol(f"{name}: {error}") from None
    if not isinstance(ufunc, np.ufunc) or sys.implementation.name != "cpython":
        raise MissingSymbol(f"{name} is no ufunc whose loops can be read")
    if types not in ufunc.types:
        raise MissingSymbol(f"{name} has no loop {types}, only {', '.join(ufunc.types)}")
    layout = _UfuncHead.from_address(id(ufunc))
    said = (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes, ufunc.__name__.encode())
    if (layout.nin, layout.nout, layout.nargs, layout.ntypes) != said[:4] or layout.name != said[4]:
        raise MissingSymbol(f"{name}: this NumPy's ufunc objects have another layout")
    at = ufunc.types.index(types)
    codes = layout.types[at * ufunc.nargs : (at + 1) * ufunc.nargs]
    if [np.dtype(code) for code in types.replace("->", "")] != [_dtype(code) for code in codes]:
        raise MissingSymbol(f"{name}: this NumPy's ufunc objects have another layout")
    function = layout.functions[at]
    if not function:
        raise MissingSymbol(f"{name} has an empty loop {types}")
    data = (layout.data[at] or 0) if layout.data else 0
    return UfuncLoop(function=function, data=data, types=types)


def blas_get_threads() -> int | None:
    """The number of threads of the BLAS behind "blas."; None where it does not say."""
    found = _blas_function("get")
    return None if found is None else int(found())


def blas_set_threads(number: int) -> bool:
    """Sets that number, for the whole process and SciPy's own calls too; whether the library let us."""
    if number < 1:
        raise ValueError(f"{number} threads: at least 1 was expected")
    found = _blas_function("set")
    if found is None:
        return False
    found(number)
    return True


def blas_thread_functions() -> tuple[int, int]:
    """The addresses of what the two functions above call; 0 where the library has none. Code that sets a number puts the one
    that it found back."""
    found: list[Any] = [_blas_function(verb) for verb in ("get", "set")]
    get, put = (int(ctypes.cast(f, ctypes.c_void_p).value or 0) if f else 0 for f in found)
    return get, put


@functools.cache
def blas_name() -> str:
    """The BLAS behind "blas.": what OpenBLAS says of itself, its version and whose processor's kernels it has taken among it;
    else SciPy's version, by which one can be told from another."""
    said = _openblas("get_config", ctypes.CFUNCTYPE(ctypes.c_char_p))
    if said is None:
        return f"the BLAS of SciPy {importlib.import_module('scipy').__version__}"
    text: bytes = said() or b""
    return " ".join(text.decode(errors="replace").split())


class _UfuncHead(ctypes.Structure):
    """The head of PyUFuncObject as `numpy/ufuncobject.h` has published it since 1.0."""

    _fields_ = (
        ("object", ctypes.c_byte * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    )


def _dtype(code: int) -> np.dtype[Any] | None:
    for char in "?bBhHiIlLqQefdgFDGO":
        if np.dtype(char).num == code:
            return np.dtype(char)
    return None


@functools.cache
def _resolve(name: str) -> tuple[int, str]:
    library, _, function = name.partition(".")
    if library == "libm" and function:
        return _libm(function)
    if name in _PLAIN_C:
        return _plain_c(library, function), _PLAIN_C[name]
    if library in sorts.SIGNATURES and function:
        return sorts.address(library, function), sorts.SIGNATURES[library]
    if library not in _MODULES or not function:
        raise MissingSymbol(f"{name!r}: {', '.join(_MODULES)} or libm, a dot and a function was expected")
    capsules = _capsules(_MODULES[library])
    if library == "special" and function not in capsules:
        function = _double_variant(function, capsules)
    if function not in capsules:
        raise MissingSymbol(f"{_MODULES[library]} exports no {function}")
    capsule = capsules[function]
    text = _capsule_name(capsule)
    return _capsule_pointer(capsule, text), _plain(text.decode())


@functools.cache
def _capsules(module: str) -> Mapping[str, object]:
    try:
        found: Mapping[str, object] = _extension(module).__pyx_capi__
    except (ImportError, AttributeError) as error:
        raise MissingSymbol(f"{module} exports no native functions: {error}") from None
    return found


def _extension(module: str) -> ModuleType:
    """The extension module; of `scipy.linalg` without the package around it, whose import takes longer than all of ours.

    It is not left in `sys.modules`: a later `import scipy.linalg` finds nothing half done, and gets the same module.
    """
    package, _, _ = module.rpartition(".")
    if package != "scipy.linalg" or package in sys.modules:
        return importlib.import_module(module)
    folders = importlib.import_module("scipy").__path__
    around = PathFinder.find_spec(package, folders)
    spec = around and PathFinder.find_spec(module, around.submodule_search_locations)
    if spec is None or spec.loader is None:
        return importlib.import_module(module)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    sys.modules.pop(module, None)
    return found


def _double_variant(function: str, capsules: Mapping[str, object]) -> str:
    """The key of a fused function's variant of doubles, or of its only variant."""
    variant = re.compile(_FUSED + re.escape(function))
    candidates = [key for key in capsules if variant.fullmatch(key)]
    doubles = [key for key in candidates if _is_double(_plain(_capsule_name(capsules[key]).decode()))]
    if len(doubles) == 1:
        return doubles[0]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        known = "; ".join(f"{key}: {_plain(_capsule_name(capsules[key]).decode())}" for key in candidates)
        raise MissingSymbol(f"special.{function} has no single variant of doubles, but there are {known}")
    return function


def _is_double(text: str) -> bool:
    result, _, arguments = text.removesuffix(")").partition(" (")
    kinds = {argument.strip() for argument in arguments.split(",")}
    return result in ("double", "void") and kinds <= {"double", "double *", _SKIP_DISPATCH}


def _plain(text: str) -> str:
    """A capsule's signature with Cython's mangled type names replaced by C's."""
    text = _LINALG_SCALAR.sub(lambda match: _SCALARS[match[1]], text)
    return re.sub(r"__pyx_t_(double|float)_complex", r"\1 complex", text)


def _capsule_name(capsule: object) -> bytes:
    function = ctypes.pythonapi.PyCapsule_GetName
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.py_object]
    found: bytes | None = function(capsule)
    return found or b""


def _capsule_pointer(capsule: object, name: bytes) -> int:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found: int = function(capsule, name)
    return found


def _plain_c(library: str, function: str) -> int:
    """The address of a function of the C library or of Python."""
    if library == "python":
        holder: ctypes.CDLL = ctypes.pythonapi
    else:
        holder = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    return int(ctypes.cast(getattr(holder, function), ctypes.c_void_p).value or 0)


@functools.cache
def _libm_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libm.so.6" if sys.platform.startswith("linux") else ctypes.util.find_library("m"))
    except OSError:
        return ctypes.CDLL(None)


def _libm(function: str) -> tuple[int, str]:
    if function not in _LIBM:
        raise MissingSymbol(f"libm.{function}: its signature is not known here")
    try:
        found = ctypes.cast(getattr(_libm_library(), function), ctypes.c_void_p).value
    except AttributeError:
        found = None
    if found is None:
        raise MissingSymbol(f"the C library has no {function}")
    return found, _LIBM[function]


@functools.cache
def _blas_function(verb: str) -> Callable[..., int] | None:
    """`openblas_{verb}_num_threads`, under the name it has in the OpenBLAS that SciPy loaded."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_int) if verb == "get" else ctypes.CFUNCTYPE(None, ctypes.c_int)
    found: Callable[..., int] | None = _openblas(f"{verb}_num_threads", prototype)
    return found


def blas_core() -> str:
    """The processor whose kernels OpenBLAS has taken, such as "Haswell"; "" where that is not known."""
    said = _openblas("get_corename", ctypes.CFUNCTYPE(ctypes.c_char_p))
    return "" if said is None else (said() or b"").decode(errors="replace")


def _openblas(name: str, prototype: Any) -> Any:
    """``openblas_{name}``, under the name it has in the OpenBLAS that SciPy loaded."""
    for path in _scipy_openblas():
        library = ctypes.CDLL(path)
        for prefix, suffix in itertools.product(("scipy_", ""), ("", "64_", "_")):
            try:
                return prototype((f"{prefix}openblas_{name}{suffix}", library))
            except AttributeError:
                continue
    return None


@functools.cache
def _scipy_openblas() -> list[str]:
    """The OpenBLAS libraries that SciPy may be using; NumPy's own is not one."""
    address("blas.dgemm")
    folder = os.path.dirname(os.path.dirname(importlib.import_module("scipy").__file__ or ""))
    mapped = [path for path in _mapped_libraries() if "openblas" in os.path.basename(path)]
    bundled = [path for path in mapped if path.startswith(os.path.join(folder, "scipy"))]
    return bundled or [path for path in mapped if not path.startswith(os.path.join(folder, "numpy"))]


def _mapped_libraries() -> list[str]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            fields = [line.rstrip("\n").split(maxsplit=5) for line in file]
    except OSError:
        return []
    return sorted({field[5] for field in fields if len(field) == 6 and ".so" in field[5]})
