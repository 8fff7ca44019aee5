"""``DeviceArray``: an array on a CUDA device, as programs take and give it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from pullback.ir.core.device_arrays import COMPUTE, Remote
from pullback.runtime.cuda.arrays import dlpack as cuda_dlpack
from pullback.runtime.cuda.arrays import pycuda_views as cuda_views
from pullback.runtime.cuda.device.deferred_release import let_go, linger
from pullback.runtime.cuda.device.device import Device, device
from pullback.runtime.cuda.device.memory import Block
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError


def _method(name: str) -> Any:
    def method(self: DeviceArray, *args: Any, **kwargs: Any) -> Any:
        return COMPUTE[0](name, (self, *args), kwargs)

    method.__name__ = name
    method.__doc__ = f"As NumPy's ``ndarray.{name}``, computed on the device."
    return method


def _in_place(name: str) -> Any:
    def method(self: DeviceArray, other: Any) -> Any:
        return COMPUTE[0](InPlace(name), (self, other), {})

    method.__name__ = f"__i{name}__"
    return method


@dataclass(frozen=True)
class InPlace:
    """What Python's operator ``name``, as "add" for ``+=``, binds its left side to: a new array of the same dtype and shape."""

    name: str


INSTEAD = {
    "sort": "x = np.sort(x)", "fill": "x = np.full_like(x, value)", "resize": "x = np.resize(x, shape)",
    "put": "x = np.where(condition, value, x)", "partition": "x = np.sort(x)",
    "setflags": "nothing writes into it", "byteswap": "np.asarray(x).byteswap() is of a copy on the host",
}  # fmt: skip
"""What is written in place of NumPy's methods that change an array."""


class DeviceArray(Remote, NDArrayOperatorsMixin):
    """An array on a CUDA device.

    Its elements do not change. What Python's operators, indexing, NumPy's functions and its own methods compute of it is compiled
    and stays on the device; ``np.asarray(x)`` and ``x.copy_to_host()`` wait for it and copy. PyTorch, CuPy, Numba and JAX take it
    without a copy, by ``__cuda_array_interface__`` or DLPack. ``dtype``, ``shape``, ``device`` ("cuda:0"), ``strides`` in bytes
    (None where it is row-major and dense). Made by ``pb.device_put`` and by compiled functions.
    """

    # ``owner`` keeps the memory: a block of the device's pool, or an object of another library's, which may be used on
    # ``streams``, handles of CUDA streams of that library's.
    __slots__ = ("__weakref__", "_key", "address", "dtype", "owner", "place", "shape", "streams", "strides")

    def __init__(
        self, place: Device, address: int, dtype: np.dtype[Any], shape: tuple[int, ...], owner: Any,
        strides: tuple[int, ...] | None = None, streams: tuple[int, ...] = (), key: tuple[Any, ...] | None = None,
    ) -> None:  # fmt: skip
        self.place = place
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.owner = owner
        self.strides = None if strides is None or strides == dense_strides(shape, dtype.itemsize) else strides
        self.streams = streams
        self._key = key

    @property
    def key(self) -> tuple[Any, ...]:
        found = self._key
        if found is None:
            found = self._key = super().key
        return found

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device that it is on, as "cuda:0"."""
        return self.place.name

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def layout(self) -> str:  # type: ignore[override]
        if not self.shape:
            return "held"
        return "c" if self.strides is None else "strided"

    # to the host

    def copy_to_host(self) -> Any:
        """A NumPy array of the elements, when they are computed. Raises DeviceError."""
        if self.strides is None:
            found = np.empty(self.shape, self.dtype)
            self._fill(self.address, found)
            return found
        first, whole, view = spread(self.shape, self.dtype, self.strides)
        self._fill(self.address + first, whole)
        return view.copy()

    def _fill(self, address: int, array: Any) -> None:
        with self.place as place:
            wait_for(self)
            place.staging.download([(address, array)])
            place.launched.clear()
            let_go(place)

    def block_until_ready(self) -> DeviceArray:
        """Wait until it is computed; returns the array. Raises DeviceFault for a kernel that failed."""
        self.place.synchronize()
        let_go(self.place)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array on a device comes to NumPy by a copy; np.asarray(x) makes one")
        found = self.copy_to_host()
        return found if dtype is None else found.astype(dtype, copy=False)

    def item(self, *index: Any) -> Any:
        """The one element, or that at an index, as a Python number."""
        return self.copy_to_host().item(*index)

    def tolist(self) -> Any:
        return self.copy_to_host().tolist()

    def __bool__(self) -> bool:
        return bool(self.copy_to_host())

    def __int__(self) -> int:
        return int(self.copy_to_host())

    def __float__(self) -> float:
        return float(self.copy_to_host())

    def __complex__(self) -> complex:
        return complex(self.copy_to_host())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.copy_to_host())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        if isinstance(self.place, Gone):
            return f"DeviceArray(given up, shape={self.shape}, dtype={self.dtype})"
        text = np.array2string(self.copy_to_host(), separator=", ", prefix="DeviceArray(")
        return f"DeviceArray({text}, dtype={self.dtype}, device={self.device!r})"

    def __str__(self) -> str:
        return repr(self) if isinstance(self.place, Gone) else str(self.copy_to_host())

    def __format__(self, spec: str) -> str:
        return format(self.copy_to_host()[()], spec)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._number("round"), digits)

    def __trunc__(self) -> int:
        return math.trunc(self._number("math.trunc"))

    def _number(self, what: str) -> Any:
        if self.shape:
            raise TypeError(f"{what} takes a number, found an array of shape {self.shape}; np.round(x), np.trunc(x)")
        return self.copy_to_host()[()]

    def __reduce__(self) -> tuple[Any, ...]:
        return uploaded, (self.copy_to_host(), self.device)

    def __copy__(self) -> DeviceArray:
        return self

    def __deepcopy__(self, memo: Any) -> DeviceArray:
        return self

    # on the device

    __hash__ = None  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        return COMPUTE[0](ufunc if method == "__call__" else getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not _has_remote((args, kwargs)):
            # np.zeros(3, like=x), which NumPy passes on without ``like``.
            return uploaded(np.asarray(function(*args, **kwargs)), self.device)
        return COMPUTE[0](function, tuple(args), dict(kwargs))

    def __getitem__(self, index: Any) -> Any:
        return self if isinstance(index, tuple) and not index and not self.shape else COMPUTE[0]("__getitem__", (self, index), {})

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __getattr__(self, name: str) -> Any:
        if name in INSTEAD:
            raise AttributeError(f"an array on a device does not change, and has no {name}: {INSTEAD[name]}")
        hint = f"; np.asarray(x).{name} is that of a copy on the host" if hasattr(np.ndarray, name) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "an array on a device does not change; write in a compiled function that returns the new array, or in a NumPy array: "
            "x = np.array(x)"
        )

    @property
    def T(self) -> Any:
        return COMPUTE[0]("transpose", (self,), {})

    @property
    def mT(self) -> Any:
        return COMPUTE[0](np.matrix_transpose, (self,), {})

    @property
    def real(self) -> Any:
        return COMPUTE[0](np.real, (self,), {})

    @property
    def imag(self) -> Any:
        return COMPUTE[0](np.imag, (self,), {})

    __iadd__, __isub__, __imul__, __itruediv__ = map(_in_place, ("add", "sub", "mul", "truediv"))
    __ifloordiv__, __imod__, __ipow__, __imatmul__ = map(_in_place, ("floordiv", "mod", "pow", "matmul"))
    __iand__, __ior__, __ixor__ = map(_in_place, ("and", "or", "xor"))
    __ilshift__, __irshift__ = map(_in_place, ("lshift", "rshift"))

    all, any, argmax, argmin, argsort = map(_method, ("all", "any", "argmax", "argmin", "argsort"))
    astype, clip, conj, cumprod, cumsum = map(_method, ("astype", "clip", "conj", "cumprod", "cumsum"))
    conjugate = _method("conj")
    diagonal, dot, flatten, max, mean, min = map(_method, ("diagonal", "dot", "flatten", "max", "mean", "min"))
    prod, ravel, repeat, reshape, round = map(_method, ("prod", "ravel", "repeat", "reshape", "round"))
    searchsorted, squeeze, std, sum, swapaxes, take = map(_method, ("searchsorted", "squeeze", "std", "sum", "swapaxes", "take"))
    trace, transpose, var = map(_method, ("trace", "transpose", "var"))

    def copy(self) -> DeviceArray:
        """An array of the same elements in memory of its own."""
        if self.strides is not None:
            flat = COMPUTE[0]("reshape", (self, -1), {})
            return DeviceArray(self.place, flat.address, self.dtype, self.shape, flat.owner)
        with self.place as place:
            block = place.take(self.nbytes, "a copy of an array")
            made = DeviceArray(place, block.address, self.dtype, self.shape, block)
            made._take(self)
        return made

    def seen_as(self, dtype: Any, shape: tuple[int, ...]) -> DeviceArray:
        """The same memory as an array of another type or shape; if it is not row-major, as the parts of complex numbers."""
        strides, dtype = self.strides, np.dtype(dtype)
        if strides is not None and dtype != self.dtype:
            strides = (*strides, dtype.itemsize)
        return DeviceArray(self.place, self.address, dtype, shape, self.owner, strides, self.streams)

    def result(self, dtype: Any, shape: tuple[int, ...]) -> DeviceArray:
        """The argument of a program, or a view of it, as its result: itself, or in memory of ours."""
        if (self.shape, self.dtype) == (shape, dtype):
            return self
        seen = self.seen_as(dtype, shape)
        return seen if isinstance(self.owner, Block) else seen.copy()

    # memory that is given up

    def bounds(self) -> tuple[int, int]:
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides or (), strict=False)] if self.size else []
        if self.strides is None:
            return self.address, self.address + self.nbytes
        return self.address + sum(min(r, 0) for r in reach), self.address + sum(max(r, 0) for r in reach) + self.itemsize

    def refusal(self) -> str:
        self.place.check()
        if self.strides is not None:
            return "is not row-major; pass a copy, x.copy()"
        if isinstance(self.owner, Block) and self.owner.is_lent:
            return "was handed to another library, which would see it change; pass a copy, x.copy()"
        if isinstance(self.owner, DeviceArray) or (isinstance(self.owner, Block) and _references(self) > ALONE):
            return "shares its memory with another array, such as what it was reshaped from; pass a copy, x.copy()"
        return ""

    def given_up(self, value: Any) -> DeviceArray:
        if isinstance(value, DeviceArray) and (value.address, value.owner) == (self.address, self.owner):
            made = value
        else:
            made = DeviceArray(self.place, self.address, self.dtype, self.shape, self.owner, self.strides, self.streams)
            with self.place:
                wait_for(made)
                made._take(value)
                settle(made)
        self.place, self.owner = cast(Device, Gone()), None
        return made

    def _take(self, value: Any) -> None:
        """Fill it, row-major, with the elements of another array of its shape; the context is current."""
        if not self.size:
            return
        if isinstance(value, DeviceArray) and value.place is self.place and value.strides is None:
            wait_for(value)
            cuda.memcpy_dtod_async(self.address, value.address, self.nbytes, self.place.stream)
            settle(value)
        else:
            host = value.copy_to_host() if isinstance(value, Remote) else value
            self.place.staging.upload(np.ascontiguousarray(host, self.dtype).reshape(self.shape), self.address)

    # to other libraries

    def lend(self) -> None:
        """From now on another library may work with the memory."""
        if isinstance(self.owner, Block):
            self.owner.is_lent = True

    def as_gpuarray(self) -> Any:
        """A ``pycuda.gpuarray.GPUArray`` that has the memory and keeps it, for reading, in the order of the default stream."""
        with self.place as place:
            self.lend()
            place.before(cuda_dlpack.LEGACY_STREAM)
        return cuda_views.gpuarray(self.address, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.place.check()
        self.lend()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, False),
            "strides": self.strides,
            "stream": self.place.stream.handle,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return cuda_dlpack.CUDA, self.place.number

    def __dlpack__(
        self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:  # fmt: skip
        """A DLPack capsule; what the consumer does on ``stream`` from then on waits for the array."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array is on {self.device}; np.from_dlpack(x.copy_to_host()) is a copy on the host")
        self.lend()
        with self.place as place:
            if stream != -1:
                place.before(cuda_dlpack.LEGACY_STREAM if stream in (None, 0) else stream)
        return cuda_dlpack.capsule(self.address, self.dtype, self.shape, self.strides, self.place.number, self)


def _references(array: Any) -> int:
    """How many references to the memory of an array there are."""
    return sys.getrefcount(array.owner)


class _Lone:
    __slots__ = ("owner",)

    def __init__(self) -> None:
        self.owner = object()


ALONE = _references(_Lone())
"""What ``_references`` says where an array alone has its memory."""


class Gone:
    """Where an array is whose memory was given up: nothing can be done with it."""

    def _refuse(self) -> NoReturn:
        raise DeviceError("this array's memory was given up to f.into(out, ...); use the array that the call returned")

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *error: object) -> None:
        pass

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()


def _has_remote(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_remote, value))
    return any(map(_has_remote, value.values())) if isinstance(value, dict) else isinstance(value, Remote)


def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides, in bytes, of a row-major array."""
    found, step = [], itemsize
    for n in reversed(shape):
        found.append(step)
        step *= n
    return tuple(reversed(found))


def spread(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> tuple[int, Any, Any]:
    """Memory of the host like that of an array with strides: how far before its first element it begins, its bytes, the array."""
    if not math.prod(shape):
        return 0, np.empty(0, np.uint8), np.empty(shape, dtype)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first = sum(min(r, 0) for r in reach)
    whole = np.empty(sum(map(abs, reach)) + dtype.itemsize, np.uint8)
    return first, whole, np.ndarray(shape, dtype, whole, -first, strides)


def uploaded(array: Any, name: str, what: str = "an array") -> DeviceArray:
    """A copy of a NumPy array on a device. Raises DeviceError."""
    place = device(name)
    source = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
    with place:
        block = place.take(source.nbytes, what)
        place.staging.upload(source, block.address)
    return DeviceArray(place, block.address, source.dtype, source.shape, block)


def wait_for(array: DeviceArray) -> None:
    """Have the device's stream wait for what other libraries do with an array of theirs."""
    for handle in array.streams:
        array.place.after(handle)


def settle(array: DeviceArray) -> None:
    """Have other libraries wait for what the device's stream does with an array of theirs; where it is not known on which stream
    they work, that is waited for here."""
    if isinstance(array.owner, Block):
        return
    for handle in array.streams:
        array.place.before(handle)
    if not array.streams:
        array.place.stream.synchronize()
    elif isinstance(array.owner, cuda_dlpack.Taken):
        linger(array.place, array.owner)
