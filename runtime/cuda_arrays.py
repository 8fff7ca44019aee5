"""``DeviceArray``: an array on a CUDA device, as programs take and give it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from pullback.ir.remote import COMPUTE, Remote
from pullback.runtime import cuda_dlpack
from pullback.runtime.cuda_device import Device, device
from pullback.runtime.cuda_memory import Block


def _method(name: str) -> Any:
    def method(self: DeviceArray, *args: Any, **kwargs: Any) -> Any:
        return COMPUTE[0](name, (self, *args), kwargs)

    method.__name__ = name
    method.__doc__ = f"As NumPy's ``ndarray.{name}``, computed on the device."
    return method


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

    def block_until_ready(self) -> DeviceArray:
        """Wait until it is computed; returns the array. Raises DeviceFault for a kernel that failed."""
        self.place.synchronize()
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
        text = np.array2string(self.copy_to_host(), separator=", ", prefix="DeviceArray(")
        return f"DeviceArray({text}, dtype={self.dtype}, device={self.device!r})"

    def __format__(self, spec: str) -> str:
        return format(self.copy_to_host()[()], spec) if not self.shape else format(str(self), spec)

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
        return COMPUTE[0](function, tuple(args), dict(kwargs))

    def __getitem__(self, index: Any) -> Any:
        return self if isinstance(index, tuple) and not index and not self.shape else COMPUTE[0]("__getitem__", (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "an array on a device does not change; write in a compiled function that returns the new array, or in a NumPy array: "
            "x = np.array(x)"
        )

    @property
    def T(self) -> Any:
        return COMPUTE[0]("transpose", (self,), {})

    @property
    def real(self) -> Any:
        return COMPUTE[0](np.real, (self,), {})

    @property
    def imag(self) -> Any:
        return COMPUTE[0](np.imag, (self,), {})

    all, any, argmax, argmin, argsort = map(_method, ("all", "any", "argmax", "argmin", "argsort"))
    astype, clip, conj, copy, cumprod, cumsum = map(_method, ("astype", "clip", "conj", "copy", "cumprod", "cumsum"))
    diagonal, dot, flatten, max, mean, min = map(_method, ("diagonal", "dot", "flatten", "max", "mean", "min"))
    prod, ravel, repeat, reshape, round = map(_method, ("prod", "ravel", "repeat", "reshape", "round"))
    squeeze, std, sum, swapaxes, take = map(_method, ("squeeze", "std", "sum", "swapaxes", "take"))
    trace, transpose, var = map(_method, ("trace", "transpose", "var"))

    # to other libraries

    def lend(self) -> None:
        """From now on another library may work with the memory."""
        if isinstance(self.owner, Block):
            self.owner.is_lent = True

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
