"""A function that ``pb.export`` compiled, as a function of NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.exporting.tree_data import builder, take
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.shapes.formulas import Formula, of_data
from pullback.runtime.program.host_calls import raised
from pullback.tracer.failures import placed
from pullback.tracer.user_code.tracebacks import keep_users_frames

_NUMBERS: Mapping[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_), "int": (int, np.int64), "float": (float, int, np.float64),
    "complex": (complex, float, int, np.complex128),
}  # fmt: skip


class Loaded:
    """A function that was exported: it takes and returns what the function in Python did, NumPy arrays in the same containers.

    Arrays must have the dtypes of the export and extents that it serves; those that are not dense and row-major are copied. Calls
    may come from several threads at once, run without the interpreter's lock, and share the threads of ``pb.set_num_threads``.
    ``__name__`` and ``__doc__`` are the function's; ``extents`` as in ``Exported``; ``cpu``: the processor it was made for, or
    the architectures; ``device``: where it runs.
    """

    def __init__(self, library: Any, about: Mapping[str, Any]) -> None:
        self._library = library
        self.device = "cpu"
        self.__name__ = str(about["title"])
        self.__doc__ = str(about["doc"]) or None
        self.cpu = str(about["target"][1])
        self.extents = {str(name): (int(low), high) for name, low, high in about["extents"]}
        self._positional, self._keyed, out = about["trees"]
        self._names = [name for name, _ in (*self._positional, *self._keyed)]
        self._leaves = [Leaf(data) for data in about["leaves"]]
        self._passed = [int(k) for k in about["passed"]]
        self._build = builder(out)
        self._results = [(DTYPES[dtype].numpy, list(map(of_data, shape))) for _, dtype, shape in about["results"]]
        self._failures = about["failures"]

    def __repr__(self) -> str:
        return f"<pullback.load of {self.__name__} from {self._library.path}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(args, kwargs)
        except Exception as error:
            keep_users_frames(error)
            raise

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        sizes: dict[str, int] = {}
        given = self._given(args, kwargs)
        values = [leaf.value(place, value, sizes) for leaf, (place, value) in zip(self._leaves, given, strict=True)]
        for leaf, value, (place, _) in zip(self._leaves, values, given):
            leaf.check(place, value, sizes)
        for name, (low, high) in self.extents.items():
            if sizes[name] < low or (high is not None and sizes[name] > high):
                served = f"from {low}" + (f" to {high}" if high is not None else " on")
                raise ValueError(f"{self.__name__} was exported for {name} {served}, found {sizes[name]}")
        return self._build(iter([r if r.ndim or isinstance(r, Remote) else r[()] for r in self._run(values, sizes)]))

    def _run(self, values: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The arrays of the result, of arguments that fit."""
        results = [np.empty([f.at(sizes) for f in shape], dtype) for dtype, shape in self._results]
        passed = [values[k] for k in self._passed]
        status = self._library.call([sizes[name] for name in self.extents], passed, results)
        if status:
            raise self._failure(status)
        return results

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """The leaves of a call, with their places."""
        if len(args) > len(self._positional):
            raise TypeError(f"{self.__name__} takes {len(self._positional)} positional arguments, {len(args)} were given")
        unknown = [name for name in kwargs if name not in self._names[len(args) :]]
        missing = [name for name in self._names[len(args) :] if name not in kwargs]
        if unknown or missing:
            problem = f"got {unknown[0]!r}" if unknown else f"misses {missing[0]!r}"
            raise TypeError(f"{self.__name__} takes {', '.join(self._names)}: it {problem}")
        leaves: list[tuple[str, Any]] = []
        for (name, tree), value in zip(self._positional, args, strict=False):
            take(tree, value, name, leaves)
        for name, tree in [*self._positional[len(args) :], *self._keyed]:
            take(tree, kwargs[name], name, leaves)
        return leaves

    def _failure(self, status: int) -> BaseException:
        """What a status is in Python."""
        check = status - self._library.first_check
        if check >= 0:
            failure = self._failures[check]
            if failure is None:
                return raised()
            error, message, place = failure
            return placed(CheckFailed(error, message), message, place)
        message = self._library.message(status)
        return MemoryError(message) if status == 1 else ValueError(message) if status == 2 else RuntimeError(message)


class Leaf:
    """What is expected of an array or number."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.kind = str(data["kind"])
        self.is_pinned = "pinned" in data
        self.pinned = data.get("pinned")
        self.dtype = None if self.is_pinned else DTYPES[data["dtype"]].numpy
        self.shape: list[Formula] = [] if self.is_pinned else list(map(of_data, data["shape"]))
        self.names = [_name_of(f) for f in self.shape]
        self.numbers = tuple([f.number for f in self.shape])

    def value(self, place: str, value: Any, sizes: dict[str, int]) -> Any:
        """The array or number to pass. Extents that stand alone in the shape are learned. Raises TypeError."""
        if self.is_pinned:
            if value != self.pinned:
                raise ValueError(f"{place} is {value!r}: the function was exported for {self.pinned!r}")
            return value
        if self.kind in _NUMBERS:
            if not isinstance(value, _NUMBERS[self.kind]) or (self.kind != "bool" and isinstance(value, bool)):
                raise TypeError(f"{place} is a {_type(value)}: a Python {self.kind} is expected")
            return np.array(value, self.dtype)
        if type(value) is np.ndarray and value.dtype == self.dtype and value.ndim == len(self.shape) and value.flags.c_contiguous:
            array = value
        else:
            array = self.converted(place, value)
        self.learn(array.shape, sizes)
        return array

    def learn(self, shape: Sequence[int], sizes: dict[str, int]) -> None:
        """Note the extents that stand alone in the shape."""
        for name, extent in zip(self.names, shape):
            if name and name not in sizes:
                sizes[name] = extent

    def converted(self, place: str, value: Any) -> np.ndarray[Any, Any]:
        """A dense array of an array or number. Raises TypeError."""
        is_number = type(value) in (int, float) and not self.shape
        if not is_number and not isinstance(value, np.ndarray | np.generic):
            raise TypeError(f"{place} is a {_type(value)}: {self} is expected")
        array = np.asarray(value, self.dtype if is_number else None)
        if array.dtype.newbyteorder("=") != self.dtype or array.ndim != len(self.shape):
            raise TypeError(f"{place} is {array.dtype}{list(array.shape)}: {self} is expected")
        return np.ascontiguousarray(array, self.dtype).reshape(array.shape)

    def check(self, place: str, value: Any, sizes: Mapping[str, int]) -> None:
        """Raises ValueError for a shape that is not what the extents say."""
        if not self.shape:
            return
        expected = tuple([sizes[name] if name else n for name, n in zip(self.names, self.numbers)])
        if value.shape != expected:
            where = ", ".join(f"{name}={n}" for name, n in sizes.items())
            raise ValueError(f"{place} has shape {value.shape}: {expected} is expected" + (f" with {where}" if where else ""))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _name_of(formula: Formula) -> str:
    """The name that an extent of an argument is; empty for a number."""
    return formula.terms[0][1][0] if formula.number is None else ""


def _type(value: Any) -> str:
    return f"{type(value).__name__}" + (f" of {value.dtype}" if isinstance(value, np.ndarray | np.generic) else "")
