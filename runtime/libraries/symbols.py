"""Addresses of native functions by dotted name: BLAS, LAPACK, special functions, libm and ufunc loops.

All dependence on the ABI of Python, NumPy, SciPy and the C library is in this folder. An address is returned only together
with a signature that was read from, or checked against, the library itself. Nothing here changes the process, except
`blas_set_threads`.

"blas.dgemm" and "lapack.dpotrf" come from `scipy.linalg.cython_blas` and `cython_lapack`: Fortran calls, every argument a
pointer, 32-bit integers. "special.psi" comes from `scipy.special.cython_special`, the variant of doubles; such a function that
returns a value takes one more argument last, the int `__pyx_skip_dispatch`, which it does not read (pass 0), while those that
return through pointers do not. "libm.tan" is the C library's, as are "c.realloc", "c.free", "c.clock" and "c.clock_gettime".
"python.PyThread_get_thread_ident" is Python's. "sort.float64" and "argsort.float64" are NumPy's; see `numpy_sorts`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.runtime.libraries import numpy_sorts

if TYPE_CHECKING:
    import ctypes.util as ctypes_util
else:
    ctypes_util = later("ctypes.util")  # it imports the packages subprocess and tempfile, and Linux needs none

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
    "c.clock_gettime": "int (clockid_t, struct timespec *)",
    "python.PyThread_get_thread_ident": "unsigned long (void)",
}

_LINALG_SCALAR = re.compile(r"__pyx_t_5scipy_6linalg_\d+cython_(?:blas|lapack)_([sdcz])\b")
_SCALARS = {"s": "float", "d": "double", "c": "float complex", "z": "double complex"}
_FUSED = r"__pyx_fuse_\d+(?:_\d+)*"
_SKIP_DISPATCH = "int __pyx_skip_dispatch"


class MissingSymbol(KeyError):
    """Raised if the installed libraries have no native function of that name."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True)
class UfuncLoop:
    """A ufunc's inner loop: the addresses in `function(char **args, intp *n, intp *steps, void *data)`."""

    function: int
    data: int
    types: str


def address(name: str) -> int:
    """Return the address of a native function, such as "blas.dgemm". Raises MissingSymbol."""
    return _resolve(name)[0]


def signature(name: str) -> str:
    """Return the C signature of a native function, such as "double (double, int __pyx_skip_dispatch)". Raises MissingSymbol."""
    return _resolve(name)[1]


@functools.cache
def ufunc_loop(name: str, types: str) -> UfuncLoop:
    """Return the loop of the ufunc `name`, such as "scipy.special.gammaln", for types such as "f->f".

    Loops serve whole arrays, and functions that `cython_special` lacks: variants of float32, Hurwitz's zeta (the ufunc
    "scipy.special._ufuncs._zeta"; the public name is a Python function). The address is read from the ufunc object, whose
    public layout is checked against the ufunc's attributes. Raises MissingSymbol for an unknown name or types, and if the
    check fails.
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
    attributes = (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes, ufunc.__name__.encode())
    if (layout.nin, layout.nout, layout.nargs, layout.ntypes) != attributes[:4] or layout.name != attributes[4]:
        raise MissingSymbol(f"{name}: this NumPy's ufunc objects have another layout")
    index = ufunc.types.index(types)
    codes = layout.types[index * ufunc.nargs : (index + 1) * ufunc.nargs]
    if [np.dtype(code) for code in types.replace("->", "")] != [_dtype(code) for code in codes]:
        raise MissingSymbol(f"{name}: this NumPy's ufunc objects have another layout")
    function = layout.functions[index]
    if not function:
        raise MissingSymbol(f"{name} has an empty loop {types}")
    data = (layout.data[index] or 0) if layout.data else 0
    return UfuncLoop(function=function, data=data, types=types)


def blas_get_threads() -> int | None:
    """Return the number of threads of the BLAS behind "blas."; None if it cannot be queried."""
    function = _blas_function("get")
    return None if function is None else int(function())


def blas_set_threads(count: int) -> bool:
    """Set that number, for the whole process including SciPy's own calls; return whether the library has such a function.
    Raises ValueError below 1."""
    if count < 1:
        raise ValueError(f"{count} threads: at least 1 was expected")
    function = _blas_function("set")
    if function is None:
        return False
    function(count)
    return True


def blas_thread_functions() -> tuple[int, int]:
    """Return the addresses of the functions that get and set that number; 0 if the library has none. Code that sets the number
    must restore the previous one."""
    functions: list[Any] = [_blas_function(verb) for verb in ("get", "set")]
    get, put = (int(ctypes.cast(f, ctypes.c_void_p).value or 0) if f else 0 for f in functions)
    return get, put


@functools.cache
def blas_name() -> str:
    """Return a description of the BLAS behind "blas.": OpenBLAS's configuration, with its version and the processor whose
    kernels it uses; else SciPy's version, which distinguishes one BLAS from another."""
    get_config = _openblas("get_config", ctypes.CFUNCTYPE(ctypes.c_char_p))
    if get_config is None:
        return f"the BLAS of SciPy {importlib.import_module('scipy').__version__}"
    text: bytes = get_config() or b""
    return " ".join(text.decode(errors="replace").split())


class _UfuncHead(ctypes.Structure):
    """The first fields of PyUFuncObject, as `numpy/ufuncobject.h` has published them since 1.0."""

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
    if library in numpy_sorts.SIGNATURES and function:
        return numpy_sorts.address(library, function), numpy_sorts.SIGNATURES[library]
    if library not in _MODULES or not function:
        raise MissingSymbol(f"{name!r}: {', '.join(_MODULES)} or libm, a dot and a function was expected")
    capsules = _capsules(_MODULES[library])
    if library == "special" and function not in capsules:
        function = _double_variant(function, capsules)
    if function not in capsules:
        raise MissingSymbol(f"{_MODULES[library]} exports no {function}")
    capsule = capsules[function]
    text = _capsule_name(capsule)
    return _capsule_pointer(capsule, text), _demangled(text.decode())


@functools.cache
def _capsules(module: str) -> Mapping[str, object]:
    try:
        capsules: Mapping[str, object] = _extension(module).__pyx_capi__
    except (ImportError, AttributeError) as error:
        raise MissingSymbol(f"{module} exports no native functions: {error}") from None
    return capsules


def _extension(module: str) -> ModuleType:
    """Return the extension module; a module of `scipy.linalg` is loaded without its package, whose import takes longer than
    our whole import.

    It is not left in `sys.modules`, so that a later `import scipy.linalg` runs normally, and gets the same module.
    """
    package, _, _ = module.rpartition(".")
    if package != "scipy.linalg" or package in sys.modules:
        return importlib.import_module(module)
    folders = importlib.import_module("scipy").__path__
    around = PathFinder.find_spec(package, folders)
    spec = around and PathFinder.find_spec(module, around.submodule_search_locations)
    if spec is None or spec.loader is None:
        return importlib.import_module(module)
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    sys.modules.pop(module, None)
    return extension


def _double_variant(function: str, capsules: Mapping[str, object]) -> str:
    """Return the key of a fused function's variant of doubles, or of its only variant."""
    variant = re.compile(_FUSED + re.escape(function))
    candidates = [key for key in capsules if variant.fullmatch(key)]
    doubles = [key for key in candidates if _is_double(_demangled(_capsule_name(capsules[key]).decode()))]
    if len(doubles) == 1:
        return doubles[0]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        variants = "; ".join(f"{key}: {_demangled(_capsule_name(capsules[key]).decode())}" for key in candidates)
        raise MissingSymbol(f"special.{function} has no single variant of doubles, but there are {variants}")
    return function


def _is_double(text: str) -> bool:
    result, _, arguments = text.removesuffix(")").partition(" (")
    kinds = {argument.strip() for argument in arguments.split(",")}
    return result in ("double", "void") and kinds <= {"double", "double *", _SKIP_DISPATCH}


def _demangled(text: str) -> str:
    """Return a capsule's signature with Cython's mangled type names replaced by C's."""
    text = _LINALG_SCALAR.sub(lambda match: _SCALARS[match[1]], text)
    return re.sub(r"__pyx_t_(double|float)_complex", r"\1 complex", text)


def _capsule_name(capsule: object) -> bytes:
    function = ctypes.pythonapi.PyCapsule_GetName
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.py_object]
    name: bytes | None = function(capsule)
    return name or b""


def _capsule_pointer(capsule: object, name: bytes) -> int:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer: int = function(capsule, name)
    return pointer


def _plain_c(library: str, function: str) -> int:
    """Return the address of a function of the C library or of Python."""
    if library == "python":
        holder: ctypes.CDLL = ctypes.pythonapi
    else:
        holder = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    return int(ctypes.cast(getattr(holder, function), ctypes.c_void_p).value or 0)


@functools.cache
def _libm_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libm.so.6" if sys.platform.startswith("linux") else ctypes_util.find_library("m"))
    except OSError:
        return ctypes.CDLL(None)


def _libm(function: str) -> tuple[int, str]:
    if function not in _LIBM:
        raise MissingSymbol(f"libm.{function}: its signature is not known here")
    try:
        pointer = ctypes.cast(getattr(_libm_library(), function), ctypes.c_void_p).value
    except AttributeError:
        pointer = None
    if pointer is None:
        raise MissingSymbol(f"the C library has no {function}")
    return pointer, _LIBM[function]


@functools.cache
def _blas_function(verb: str) -> Callable[..., int] | None:
    """Return `openblas_{verb}_num_threads` of the OpenBLAS that SciPy loaded; None if there is none."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_int) if verb == "get" else ctypes.CFUNCTYPE(None, ctypes.c_int)
    bound: Callable[..., int] | None = _openblas(f"{verb}_num_threads", prototype)
    return bound


def blas_core() -> str:
    """Return the processor whose kernels OpenBLAS uses, such as "Haswell"; "" if that is unknown."""
    get_corename = _openblas("get_corename", ctypes.CFUNCTYPE(ctypes.c_char_p))
    return "" if get_corename is None else (get_corename() or b"").decode(errors="replace")


def _openblas(name: str, prototype: Any) -> Any:
    """Return ``openblas_{name}`` of the OpenBLAS that SciPy loaded, whatever the prefix and suffix of its symbols; None if
    there is none."""
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
    """Return the paths of the OpenBLAS libraries that SciPy may be using; NumPy's own is excluded."""
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
