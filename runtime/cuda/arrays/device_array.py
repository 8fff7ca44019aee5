"""``DeviceArray``: an array on a CUDA device, an argument and result of programs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, NoReturn, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from pullback.ir.core.device_arrays import COMPUTE, Remote
from pullback.ir.core.records import dataclass
from pullback.runtime.cuda.arrays import dlpack as cuda_dlpack
from pullback.runtime.cuda.arrays import pycuda_views
from pullback.runtime.cuda.device.deferred_release import keep_until_done, release_done
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
    """The in-place operator ``name``, such as "add" for ``+=``. Its left side is bound to a new array of the same dtype and
    shape."""

    name: str


INSTEAD = {
    "sort": "x = np.sort(x)", "fill": "x = np.full_like(x, value)", "resize": "x = np.resize(x, shape)",
    "put": "x = np.where(condition, value, x)", "partition": "x = np.sort(x)",
    "setflags": "nothing writes into it", "byteswap": "np.asarray(x).byteswap() is of a copy on the host",
}  # fmt: skip
"""What to write in place of NumPy's methods that change an array."""


class DeviceArray(Remote, NDArrayOperatorsMixin):
    """Hold an array on a CUDA device, created by `device_put` and by compiled functions.

    Its elements do not change. Python's operators, indexing, NumPy's functions and its own methods are compiled and run on the
    device; ``np.asarray(x)`` and ``x.copy_to_host()`` wait for the result and copy it. PyTorch, CuPy, Numba and JAX use it
    without a copy, by ``__cuda_array_interface__`` or DLPack.

    Attributes
    ----------
    dtype : numpy.dtype
        The dtype of its elements.
    shape : tuple of int
        Its shape.
    device : str
        The device, such as "cuda:0".
    strides : tuple of int or None
        Strides in bytes; None if it is row-major and dense.

    See Also
    --------
    device_put : Move arrays to a device.

    Examples
    --------
    >>> x = pb.device_put(np.arange(3.0), "cuda")  # needs a device
    >>> (x + 1).copy_to_host()  # needs a device
    array([1., 2., 3.])
    >>> x.device  # needs a device
    'cuda:0'
    """

    # ``owner`` keeps the memory alive: a block of the device's pool, or an object of another library, which may be used on
    # ``streams``, handles of that library's CUDA streams. ``gpu`` is the Device.
    __slots__ = ("__weakref__", "_key", "address", "dtype", "gpu", "owner", "shape", "streams", "strides")

    def __init__(
        self, gpu: Device, address: int, dtype: np.dtype[Any], shape: tuple[int, ...], owner: Any,
        strides: tuple[int, ...] | None = None, streams: tuple[int, ...] = (), key: tuple[Any, ...] | None = None,
    ) -> None:  # fmt: skip
        self.gpu = gpu
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.owner = owner
        self.strides = None if strides is None or strides == dense_strides(shape, dtype.itemsize) else strides
        self.streams = streams
        self._key = key

    @property
    def key(self) -> tuple[Any, ...]:
        known_key = self._key
        if known_key is None:
            known_key = self._key = super().key
        return known_key

    @property
    def device(self) -> str:  # type: ignore[override]
        """The name of the array's device, such as "cuda:0"."""
        return self.gpu.name

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
        """Return a NumPy array of the elements, after waiting for them. Raises DeviceError."""
        if self.strides is None:
            array = np.empty(self.shape, self.dtype)
            self._fill(self.address, array)
            return array
        first, buffer, view = strided_buffer(self.shape, self.dtype, self.strides)
        self._fill(self.address + first, buffer)
        return view.copy()

    def _fill(self, address: int, array: Any) -> None:
        with self.gpu as gpu:
            wait_for(self)
            gpu.staging.download([(address, array)])
            gpu.launched.clear()
            release_done(gpu)

    def block_until_ready(self) -> DeviceArray:
        """Wait until the array is computed, and return it. Raises DeviceFault if a kernel failed."""
        self.gpu.synchronize()
        release_done(self.gpu)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array on a device comes to NumPy by a copy; np.asarray(x) makes one")
        array = self.copy_to_host()
        return array if dtype is None else array.astype(dtype, copy=False)

    def item(self, *index: Any) -> Any:
        """Return the only element, or the element at an index, as a Python scalar."""
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
        if isinstance(self.gpu, Donated):
            return f"DeviceArray(given up, shape={self.shape}, dtype={self.dtype})"
        text = np.array2string(self.copy_to_host(), separator=", ", prefix="DeviceArray(")
        return f"DeviceArray({text}, dtype={self.dtype}, device={self.device!r})"

    def __str__(self) -> str:
        return repr(self) if isinstance(self.gpu, Donated) else str(self.copy_to_host())

    def __format__(self, spec: str) -> str:
        return format(self.copy_to_host()[()], spec)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._number("round"), digits)

    def __trunc__(self) -> int:
        return math.trunc(self._number("math.trunc"))

    def _number(self, function: str) -> Any:
        if self.shape:
            raise TypeError(f"{function} takes a number, found an array of shape {self.shape}; np.round(x), np.trunc(x)")
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
        """Return an array of the same elements in memory of its own."""
        if self.strides is not None:
            flat = COMPUTE[0]("reshape", (self, -1), {})
            return DeviceArray(self.gpu, flat.address, self.dtype, self.shape, flat.owner)
        with self.gpu as gpu:
            block = gpu.take(self.nbytes, "a copy of an array")
            result = DeviceArray(gpu, block.address, self.dtype, self.shape, block)
            result._take(self)
        return result

    def seen_as(self, dtype: Any, shape: tuple[int, ...]) -> DeviceArray:
        """Return the same memory as an array of another dtype or shape; a strided array can only be viewed as the parts of its
        complex numbers."""
        strides, dtype = self.strides, np.dtype(dtype)
        if strides is not None and dtype != self.dtype:
            strides = (*strides, dtype.itemsize)
        return DeviceArray(self.gpu, self.address, dtype, shape, self.owner, strides, self.streams)

    def result(self, dtype: Any, shape: tuple[int, ...]) -> DeviceArray:
        """Return this argument of a program, or a view of it, as a result: itself, or an array in memory of our pool."""
        if (self.shape, self.dtype) == (shape, dtype):
            return self
        seen = self.seen_as(dtype, shape)
        return seen if isinstance(self.owner, Block) else seen.copy()

    # donated memory

    def bounds(self) -> tuple[int, int]:
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides or (), strict=False)] if self.size else []
        if self.strides is None:
            return self.address, self.address + self.nbytes
        return self.address + sum(min(r, 0) for r in reach), self.address + sum(max(r, 0) for r in reach) + self.itemsize

    def refusal(self) -> str:
        self.gpu.check()
        if self.strides is not None:
            return "is not row-major; pass a copy, x.copy()"
        if isinstance(self.owner, Block) and self.owner.is_lent:
            return "was handed to another library, which would see it change; pass a copy, x.copy()"
        if isinstance(self.owner, DeviceArray) or (isinstance(self.owner, Block) and _references(self) > UNSHARED):
            return "shares its memory with another array, such as what it was reshaped from; pass a copy, x.copy()"
        return ""

    def given_up(self, value: Any) -> DeviceArray:
        if isinstance(value, DeviceArray) and (value.address, value.owner) == (self.address, self.owner):
            result = value
        else:
            result = DeviceArray(self.gpu, self.address, self.dtype, self.shape, self.owner, self.strides, self.streams)
            with self.gpu:
                wait_for(result)
                result._take(value)
                signal_owner(result)
        self.gpu, self.owner = cast(Device, Donated()), None
        return result

    def _take(self, value: Any) -> None:
        """Fill this row-major array with the elements of another of its shape. The context must be current."""
        if not self.size:
            return
        if isinstance(value, DeviceArray) and value.gpu is self.gpu and value.strides is None:
            wait_for(value)
            cuda.memcpy_dtod_async(self.address, value.address, self.nbytes, self.gpu.stream)
            signal_owner(value)
        else:
            host = value.copy_to_host() if isinstance(value, Remote) else value
            self.gpu.staging.upload(np.ascontiguousarray(host, self.dtype).reshape(self.shape), self.address)

    # to other libraries

    def lend(self) -> None:
        """Mark the memory as usable by another library from now on."""
        if isinstance(self.owner, Block):
            self.owner.is_lent = True

    def as_gpuarray(self) -> Any:
        """Return a ``pycuda.gpuarray.GPUArray`` over the memory, which keeps it alive, for reading, ordered with the default
        stream."""
        with self.gpu as gpu:
            self.lend()
            gpu.make_stream_wait(cuda_dlpack.LEGACY_STREAM)
        return pycuda_views.gpuarray(self.address, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.gpu.check()
        self.lend()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, False),
            "strides": self.strides,
            "stream": self.gpu.stream.handle,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return cuda_dlpack.CUDA, self.gpu.index

    def __dlpack__(
        self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:  # fmt: skip
        """Return a DLPack capsule; later work of the consumer on ``stream`` waits for the array."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array is on {self.device}; np.from_dlpack(x.copy_to_host()) is a copy on the host")
        self.lend()
        with self.gpu as gpu:
            if stream != -1:
                gpu.make_stream_wait(cuda_dlpack.LEGACY_STREAM if stream in (None, 0) else stream)
        return cuda_dlpack.capsule(self.address, self.dtype, self.shape, self.strides, self.gpu.index, self)


def _references(array: Any) -> int:
    """Return the number of references to the owner of an array's memory."""
    return sys.getrefcount(array.owner)


class _Lone:
    __slots__ = ("owner",)

    def __init__(self) -> None:
        self.owner = object()


UNSHARED = _references(_Lone())
"""The result of ``_references`` for an array that does not share its memory."""


class Donated:
    """The ``gpu`` of an array whose memory was donated: any use raises DeviceError."""

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
    """Return the strides, in bytes, of a row-major array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def strided_buffer(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> tuple[int, Any, Any]:
    """Return host memory laid out like an array with these strides: the offset of its first byte from the first element, its
    bytes, and the array over them."""
    if not math.prod(shape):
        return 0, np.empty(0, np.uint8), np.empty(shape, dtype)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first = sum(min(r, 0) for r in reach)
    buffer = np.empty(sum(map(abs, reach)) + dtype.itemsize, np.uint8)
    return first, buffer, np.ndarray(shape, dtype, buffer, -first, strides)


def uploaded(array: Any, name: str, description: str = "an array") -> DeviceArray:
    """Return a copy of a NumPy array on a device. Raises DeviceError."""
    gpu = device(name)
    source = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
    with gpu:
        block = gpu.take(source.nbytes, description)
        gpu.staging.upload(source, block.address)
    return DeviceArray(gpu, block.address, source.dtype, source.shape, block)


def wait_for(array: DeviceArray) -> None:
    """Make the device's stream wait for the work of other libraries on an array of theirs."""
    for handle in array.streams:
        array.gpu.wait_for_stream(handle)


def signal_owner(array: DeviceArray) -> None:
    """Make other libraries wait for the work of the device's stream on an array of theirs. If their streams are not known, the
    host waits for the stream here."""
    if isinstance(array.owner, Block):
        return
    for handle in array.streams:
        array.gpu.make_stream_wait(handle)
    if not array.streams:
        array.gpu.stream.synchronize()
    elif isinstance(array.owner, cuda_dlpack.ForeignTensor):
        keep_until_done(array.gpu, array.owner)
