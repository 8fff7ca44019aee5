"""A loaded function that ``pb.export`` compiled, called with NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.exporting.tree_data import append_leaves, builder
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.shapes.formulas import Formula, from_data
from pullback.runtime.program.host_calls import take_exception
from pullback.tracer.arrays.literals import PYTHON_NUMBERS, scalar_of
from pullback.tracer.failures import located
from pullback.tracer.user_code.tracebacks import keep_users_frames

_NUMBERS: Mapping[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_), "int": (int, np.int64), "float": (float, int, np.float64),
    "complex": (complex, float, int, np.complex128),
}  # fmt: skip
"""Types accepted for each kind of Python scalar argument."""


class Loaded:
    """Hold an exported function, which takes and returns the same as the Python function.

    Arrays must have the dtypes of the export and extents that it serves; those that are not dense and row-major are copied. Calls
    may come from several threads at once, release the GIL, and share the threads of `set_num_threads`. ``__name__`` and
    ``__doc__`` are the function's.

    Attributes
    ----------
    extents : mapping of str to (int, int or None)
        As in `Exported`.
    cpu : str
        The processor, or the architectures, that it was compiled for.
    device : str
        The device on which it runs.

    See Also
    --------
    load : Returns it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = pb.export(lambda x: np.sum(x**2), "f64[n]", path=folder.name + "/square", name="square")
    >>> square = pb.load(files.library, trust=True)
    >>> square(np.array([1.0, 2.0])), square.device
    (np.float64(5.0), 'cpu')
    >>> folder.cleanup()
    """

    def __init__(self, library: Any, manifest: Mapping[str, Any]) -> None:
        self._library = library
        self.device = "cpu"
        self.__name__ = str(manifest["title"])
        self.__doc__ = str(manifest["doc"]) or None
        self.cpu = str(manifest["target"][1])
        self.extents = {str(name): (int(low), high) for name, low, high in manifest["extents"]}
        self._positional, self._keyed, out = manifest["trees"]
        self._names = [name for name, _ in (*self._positional, *self._keyed)]
        self._leaves = [Leaf(data) for data in manifest["leaves"]]
        self._passed = [int(k) for k in manifest["passed"]]
        self._build = builder(out)
        self._results = [(DTYPES[dtype].numpy, list(map(from_data, shape))) for _, dtype, shape in manifest["results"]]
        self._kinds = [PYTHON_NUMBERS.get(name) for name in manifest.get("python_numbers", [""] * len(self._results))]
        self._failures = manifest["failures"]

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
        leaves = self._flattened(args, kwargs)
        values = [leaf.value(path, value, sizes) for leaf, (path, value) in zip(self._leaves, leaves, strict=True)]
        for leaf, value, (path, _) in zip(self._leaves, values, leaves):
            leaf.check(path, value, sizes)
        for name, (low, high) in self.extents.items():
            if sizes[name] < low or (high is not None and sizes[name] > high):
                served = f"from {low}" + (f" to {high}" if high is not None else " on")
                raise ValueError(f"{self.__name__} was exported for {name} {served}, found {sizes[name]}")
        return self._build(map(scalar_of, self._run(values, sizes), self._kinds))

    def _run(self, values: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """Return the result arrays for arguments that have been checked."""
        results = [np.empty([f.at(sizes) for f in shape], dtype) for dtype, shape in self._results]
        passed = [values[k] for k in self._passed]
        status = self._library.call([sizes[name] for name in self.extents], passed, results)
        if status:
            raise self._failure(status)
        return results

    def _flattened(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return the leaves of a call with their paths. Raises TypeError."""
        if len(args) > len(self._positional):
            raise TypeError(f"{self.__name__} takes {len(self._positional)} positional arguments, {len(args)} were given")
        unknown = [name for name in kwargs if name not in self._names[len(args) :]]
        missing = [name for name in self._names[len(args) :] if name not in kwargs]
        if unknown or missing:
            problem = f"got {unknown[0]!r}" if unknown else f"misses {missing[0]!r}"
            raise TypeError(f"{self.__name__} takes {', '.join(self._names)}: it {problem}")
        leaves: list[tuple[str, Any]] = []
        for (name, tree), value in zip(self._positional, args, strict=False):
            append_leaves(tree, value, name, leaves)
        for name, tree in [*self._positional[len(args) :], *self._keyed]:
            append_leaves(tree, kwargs[name], name, leaves)
        return leaves

    def _failure(self, status: int) -> BaseException:
        """Return the Python exception of a status."""
        check = status - self._library.first_check
        if check >= 0:
            failure = self._failures[check]
            if failure is None:
                return take_exception()
            error, message, location = failure
            return located(CheckFailed(error, message), message, location)
        message = self._library.message(status)
        return MemoryError(message) if status == 1 else ValueError(message) if status == 2 else RuntimeError(message)


class Leaf:
    """The expected dtype and shape of an array or number."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.kind = str(data["kind"])
        self.is_pinned = "pinned" in data
        self.pinned = data.get("pinned")
        self.dtype = None if self.is_pinned else DTYPES[data["dtype"]].numpy
        self.shape: list[Formula] = [] if self.is_pinned else list(map(from_data, data["shape"]))
        self.names = [_name_of(f) for f in self.shape]
        self.numbers = tuple([f.constant_value for f in self.shape])

    def value(self, path: str, value: Any, sizes: dict[str, int]) -> Any:
        """Return the array or number to pass; extents that are a dimension by themselves are learned. Raises TypeError,
        ValueError."""
        if self.is_pinned:
            if value != self.pinned:
                raise ValueError(f"{path} is {value!r}: the function was exported for {self.pinned!r}")
            return value
        if self.kind in _NUMBERS:
            if not isinstance(value, _NUMBERS[self.kind]) or (self.kind != "bool" and isinstance(value, bool)):
                raise TypeError(f"{path} is a {_type(value)}: a Python {self.kind} is expected")
            return np.array(value, self.dtype)
        if type(value) is np.ndarray and value.dtype == self.dtype and value.ndim == len(self.shape) and value.flags.c_contiguous:
            array = value
        else:
            array = self.converted(path, value)
        self.learn(array.shape, sizes)
        return array

    def learn(self, shape: Sequence[int], sizes: dict[str, int]) -> None:
        """Record the extents that are a dimension by themselves."""
        for name, extent in zip(self.names, shape):
            if name and name not in sizes:
                sizes[name] = extent

    def converted(self, path: str, value: Any) -> np.ndarray[Any, Any]:
        """Convert an array or number to a dense array. Raises TypeError."""
        is_number = type(value) in (int, float) and not self.shape
        if not is_number and not isinstance(value, np.ndarray | np.generic):
            raise TypeError(f"{path} is a {_type(value)}: {self} is expected")
        array = np.asarray(value, self.dtype if is_number else None)
        if array.dtype.newbyteorder("=") != self.dtype or array.ndim != len(self.shape):
            raise TypeError(f"{path} is {array.dtype}{list(array.shape)}: {self} is expected")
        return np.ascontiguousarray(array, self.dtype).reshape(array.shape)

    def check(self, path: str, value: Any, sizes: Mapping[str, int]) -> None:
        """Raise ValueError for a shape that does not match the extents."""
        if not self.shape:
            return
        expected = tuple([sizes[name] if name else n for name, n in zip(self.names, self.numbers)])
        if value.shape != expected:
            where = ", ".join(f"{name}={n}" for name, n in sizes.items())
            raise ValueError(f"{path} has shape {value.shape}: {expected} is expected" + (f" with {where}" if where else ""))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _name_of(formula: Formula) -> str:
    """Return the named extent that a dimension is; empty for a number."""
    return formula.terms[0][1][0] if formula.constant_value is None else ""


def _type(value: Any) -> str:
    return f"{type(value).__name__}" + (f" of {value.dtype}" if isinstance(value, np.ndarray | np.generic) else "")
