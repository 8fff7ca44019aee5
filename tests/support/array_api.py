"""An array API namespace in which every call is traced: what the public suite (data-apis/array-api-tests) is run against.

``namespace`` has the functions of ``pullback.numpy``. Each call, operator and method of its arrays is traced and the trace is
interpreted; every ``SAMPLE``-th is compiled as well, and both must agree.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import pullback as pb
import pullback.numpy as pnp
from pullback.ir.interpret import interpret
from pullback.tracer import trace, unflatten

SAMPLE = int(os.environ.get("PULLBACK_ARRAY_API_SAMPLE", "50"))
_calls = itertools.count()

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = ("neg", "pos", "abs", "invert")
OPERATORS = (*ARITHMETIC, *(f"r{name}" for name in ARITHMETIC), *COMPARISONS, *UNARY)
IN_PLACE = tuple(f"i{name}" for name in ARITHMETIC)


class Array:
    """An array whose operators and methods are traced."""

    __array_priority__ = 100.0

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    dtype = property(lambda self: self.value.dtype)
    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    device = property(lambda self: self.value.device)
    T = property(lambda self: run(lambda x: x.T, self))
    mT = property(lambda self: run(lambda x: x.mT, self))
    __hash__ = None  # type: ignore[assignment]

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        self.value.__array_namespace__(api_version=api_version)
        return namespace

    def __getitem__(self, key: Any) -> Any:
        return run(lambda x, k: x[k], self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        def write(x: Any, k: Any, v: Any) -> Any:
            x[k] = v
            return x

        self.value[...] = run(write, self, key, value).value

    def to_device(self, device: Any, *, stream: Any = None) -> Any:
        self.value.to_device(device, stream=stream)
        return self

    def __dlpack__(self, /, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        return self.value.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __repr__(self) -> str:
        return f"Array({self.value!r})"


def _method(name: str) -> Callable[..., Any]:
    def method(self: Array, *others: Any) -> Any:
        return run(lambda x, *ys: getattr(x, name)(*ys), self, *others)

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: Array, other: Any) -> Any:
        def write(x: Any, y: Any) -> Any:
            return getattr(operator, name)(x, y)

        self.value[...] = run(write, self, other).value
        return self

    return method


for _name in OPERATORS:
    setattr(Array, f"__{_name}__", _method(f"__{_name}__"))
for _name in IN_PLACE:
    setattr(Array, f"__{_name}__", _in_place(_name))


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call with arrays and other arguments, traced and interpreted; sampled calls are compiled too."""
    arrays: list[Any] = []

    def taken(value: Any) -> Any:
        match value:
            case Array():
                arrays.append(value.value.copy())
                return _Place(len(arrays) - 1)
            case list() | tuple():
                return type(value)(map(taken, value))
        return value

    places = [taken(a) for a in args], {k: taken(v) for k, v in kwargs.items()}

    def call(*traced: Any) -> Any:
        def arguments(value: Any) -> Any:
            match value:
                case _Place():
                    return traced[value.index]
                case list() | tuple():
                    return type(value)(map(arguments, value))
            return value

        return function(*map(arguments, places[0]), **{k: arguments(v) for k, v in places[1].items()})

    if not arrays:
        return wrapped(call())
    actual = trace(call, arrays)
    inputs = actual.arguments(arrays)
    assert inputs is not None
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        results = interpret(actual.function, *inputs)
    result = unflatten(actual.out_tree, results[: len(actual.returned)])
    if next(_calls) % SAMPLE == 0:
        agree(result, pb.jit(call)(*arrays))
    return wrapped(result)


class _Place:
    def __init__(self, index: int) -> None:
        self.index = index


def agree(interpreted: Any, compiled: Any) -> None:
    """Both targets give the same."""
    if isinstance(interpreted, tuple | list):
        for a, b in zip(interpreted, compiled, strict=True):
            agree(a, b)
        return
    a, b = np.asarray(interpreted), np.asarray(compiled)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    single = a.dtype.itemsize <= (8 if a.dtype.kind == "c" else 4)
    tolerance = (1e-5 if single else 1e-11) if a.dtype.kind in "fc" else 0
    np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * np.max(np.abs(a[np.isfinite(a)]), initial=1.0))


def wrapped(value: Any) -> Any:
    """A result with its arrays as ``Array``s."""
    match value:
        case np.ndarray() | np.generic():
            return Array(value)
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*map(wrapped, value))
        case list() | tuple():
            return type(value)(map(wrapped, value))
    return value


class Namespace(ModuleType):
    """A module of ``pullback.numpy`` with its functions traced."""

    def __init__(self, module: Any) -> None:
        super().__init__(f"traced.{module.__name__}")
        self._module = module

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._module, name)
        if isinstance(result, ModuleType):
            return Namespace(result)
        if isinstance(result, type) or not callable(result) or name in ("finfo", "iinfo", "isdtype", "can_cast", "result_type"):
            return _about_types(result) if name in ("finfo", "iinfo", "can_cast", "result_type") else result
        if name == "from_dlpack":
            return _from_outside(result)

        @functools.wraps(result.__wrapped__)
        def traced(*args: Any, **kwargs: Any) -> Any:
            return run(result, *args, **kwargs)

        return traced

    def __dir__(self) -> list[str]:
        return dir(self._module)


def _about_types(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(lambda *args: function(*(a.value if isinstance(a, Array) else a for a in args)))


def _from_outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes arrays of what is no array of the namespace."""
    return functools.wraps(function)(lambda *args, **kwargs: Array(function(*args, **kwargs)))


namespace = Namespace(pnp)
for _name in ("__array_api_version__", "__array_namespace_info__"):
    setattr(namespace, _name, getattr(pnp, _name, None))
