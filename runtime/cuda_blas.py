"""Matrix products by cuBLAS, where its library is: a kernel that is one product, or a batch of them, and large enough.

cuBLAS counts columns first. A row-major ``c = a @ b`` is, seen so, ``c.T = b.T @ a.T`` of the transposes that lie there.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pullback.ir.extents import value_of
from pullback.ir.ops.kernel import Extent, For, Sub
from pullback.ir.ops.library import gemm
from pullback.ir.structure import Function, Instruction, Value, walk
from pullback.ir.types import RefType
from pullback.runtime.cuda_errors import DeviceError

if TYPE_CHECKING:
    from pullback.runtime.cuda_device import Device

NAMES = ("libcublas.so.13", "libcublas.so.12")
WORTH = 1 << 18
"""Smaller products, in multiplications, are left to a kernel of our own."""
MOST = 2**31 - 1
WORKSPACE = 32 << 20
DEFAULT_ALGORITHM = -1
# By element type: the code of the type, that of the arithmetic, and the type of the factors.
TYPES = {"f32": (0, 68, ctypes.c_float), "f64": (1, 70, ctypes.c_double)}


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """``c[m, n] = op(a) @ op(b)`` for each of a batch, of dense matrices; ``ta``: ``a`` lies as ``[k, m]``, ``tb``: ``b`` as
    ``[n, k]``. ``operands``: which arguments of the launch are a, b and c."""

    dtype: str
    m: int
    n: int
    k: int
    ta: bool
    tb: bool
    batch: int
    operands: tuple[int, int, int]


def product_of(kernel: Function, sizes: Mapping[str, int]) -> Product | None:
    """The product that a kernel, as ``lower`` made it, is with these sizes; None if it is something else, or not worth it."""
    calls = _work(kernel)
    if not is_product(kernel):
        return None
    made = {i.result: i for i in walk(kernel.body) if isinstance(i.op, Sub)}
    chains = [_chain(v, made) for v in calls[0].operands]
    roots = [root for root, _ in chains]
    if any(index != chains[2][1] for _, index in chains):
        return None
    types = [v.type for v in roots]
    if any(not isinstance(t, RefType) or t.layout != "c" or t.dtype.name not in TYPES for t in types):
        return None
    shapes = [[value_of(e, sizes) for e in t.shape] for t in types if isinstance(t, RefType)]
    batch = 1
    for count in shapes[2][:-2]:
        batch *= count
    if any(shape[:-2] != shapes[2][:-2] for shape in shapes):
        return None
    ta, tb = bool(calls[0].params["ta"]), bool(calls[0].params["tb"])
    (m, n), k = shapes[2][-2:], shapes[0][-2 if ta else -1]
    if min(m, n, k, batch) <= 0 or max(m, n, k, batch) > MOST or m * n * k * batch < WORTH:
        return None
    places = [kernel.parameters.index(v) for v in roots]
    return Product(types[2].dtype.name, m, n, k, ta, tb, batch, (places[0], places[1], places[2]))


def is_product(kernel: Function) -> bool:
    """Whether all that a kernel does is a product, or one for each of a batch."""
    return [i.op for i in _work(kernel)] == [gemm]


def _work(kernel: Function) -> list[Instruction]:
    return [i for i in walk(kernel.body) if not isinstance(i.op, Extent | For | Sub)]


def _chain(value: Value, made: Mapping[Value, Instruction]) -> tuple[Value, list[Value]]:
    """The parameter that a matrix is a part of, and at which index of each axis."""
    index: list[Value] = []
    while value in made:
        value, at = made[value].operands
        index.insert(0, at)
    return value, index


class Blas:
    """cuBLAS on one device, for any thread. Raises OSError where there is none, DeviceError where it does not start."""

    def __init__(self, device: Device, library: Any) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._handle = ctypes.c_void_p()
        with device:
            self._check(library.cublasCreate_v2(ctypes.byref(self._handle)), "start")
            self._workspace = device.take(WORKSPACE, "the workspace of cuBLAS")

    def multiply(self, product: Product, addresses: Sequence[int], stream: Any) -> None:
        """Give a stream a product of matrices at these addresses, of a, b and c."""
        p = product
        kind, arithmetic, number = TYPES[p.dtype]
        one, zero = number(1), number(0)
        a, b, c = map(ctypes.c_void_p, addresses)
        lda, ldb = p.m if p.ta else p.k, p.k if p.tb else p.n
        strides = [ctypes.c_longlong(s) for s in (p.k * p.n, p.m * p.k, p.m * p.n)]
        with self._lock:
            self._check(self._library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream.handle)), "take a stream")
            place, size = ctypes.c_void_p(self._workspace.address), ctypes.c_size_t(WORKSPACE)
            self._check(self._library.cublasSetWorkspace_v2(self._handle, place, size), "take memory")
            status = self._library.cublasGemmStridedBatchedEx(
                self._handle, int(p.tb), int(p.ta), p.n, p.m, p.k, ctypes.byref(one), b, kind, ldb, strides[0],
                a, kind, lda, strides[1], ctypes.byref(zero), c, kind, p.n, strides[2], p.batch, arithmetic, DEFAULT_ALGORITHM,
            )  # fmt: skip
        self._check(status, "multiply matrices")

    def _check(self, status: int, what: str) -> None:
        if status:
            raise DeviceError(f"cuBLAS could not {what} (its error {status})")


def _found() -> Any:
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
    beside = [str(path) for name in NAMES for folder in folders for path in sorted(folder.glob(f"*/lib/{name}"))]
    for name in (*beside, *NAMES):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


libraries: list[Callable[[], Any]] = [_found]
"""What looks for cuBLAS: the first is asked. Tests put another one there."""


def blas(device: Device) -> Blas | None:
    """cuBLAS on a device; None where it is not to be had."""
    library = libraries[0]()
    if library is None:
        return None
    try:
        return Blas(device, library)
    except DeviceError:
        return None
