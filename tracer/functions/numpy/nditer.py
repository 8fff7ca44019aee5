"""``np.nditer`` and ``np.broadcast`` over traced arrays, element by element in row-major order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.make import as_traced, broadcast_shapes, holds_traced, result_type, row_major_results
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.traced import READONLY, TracedArray
from pullback.tracer.functions.numpy.creation import empty
from pullback.tracer.user_code.errors import TraceError

_INSTEAD = "loop over the array, np.ndindex of its shape, or np.ndenumerate"
_FLAGS = frozenset({"multi_index", "c_index", "refs_ok", "zerosize_ok", "copy_if_overlap"})
_WRITES = frozenset({"readwrite", "writeonly"})


class Nditer:
    """An iterator over several arrays at once, broadcast against each other."""

    def __init__(self, op: Any, flags: Any = (), op_flags: Any = None, op_dtypes: Any = None, order: str = "K",
                 casting: str = "safe", **kwargs: Any) -> None:  # fmt: skip
        wanted = [f for f in flags or () if f not in _FLAGS]
        unsupported = [*wanted, *(f"{k}=" for k, v in kwargs.items() if v is not None), *(["op_dtypes="] if op_dtypes else [])]
        if unsupported:
            raise TraceError(f"np.nditer of traced arrays with {', '.join(unsupported)}; {_INSTEAD}")
        is_list = isinstance(op, list | tuple)
        operands = list(op) if is_list else [op]
        each = op_flags or [["writeonly", "allocate"] if o is None else ["readonly"] for o in operands]
        if isinstance(each[0], str):
            each = [each] * len(operands)
        arrays = [None if o is None else as_traced(o) for o in operands]
        present = [a for a in arrays if a is not None]
        self.shape = broadcast_shapes(*(a.shape for a in present))
        if 0 in self.shape and "zerosize_ok" not in flags:
            raise ValueError("Iteration of zero-sized operands is not enabled")
        if not all(map(row_major_results, present)) and order != "C":
            raise TraceError(
                f"np.nditer in the memory order of an array that is not in row-major order; use order='C', or {_INSTEAD}"
            )
        dtype = result_type(*present)
        self.operands = tuple(empty(self.shape, dtype) if a is None else a for a in arrays)
        self._readonly = [not _WRITES & set(f) for f in each]
        self._returns_tuples = is_list and len(operands) > 1
        self._indices = list(np.ndindex(*self.shape))
        self._flags = frozenset(flags or ())
        self.ndim, self.nop, self.itersize = len(self.shape), len(operands), math.prod(self.shape)
        self.reset()

    def reset(self) -> None:
        self._at, self._started = 0, False

    def __enter__(self) -> Nditer:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: the elements are views, so writes have already reached the operands."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._at += self._started
        self._started = True
        if self.finished:
            raise StopIteration
        return self.value

    def iternext(self) -> bool:
        self._at += 1
        return not self.finished

    @property
    def finished(self) -> bool:
        return self._at >= len(self._indices)

    @property
    def multi_index(self) -> tuple[int, ...]:
        if "multi_index" not in self._flags:
            raise ValueError("Iterator is not tracking a multi-index")
        return self._indices[self._at]

    @property
    def index(self) -> int:
        if "c_index" not in self._flags:
            raise ValueError("Iterator does not have an index")
        return self._at

    @property
    def value(self) -> Any:
        elements = tuple(self._element(k) for k in range(self.nop))
        return elements if self._returns_tuples else elements[0]

    def __len__(self) -> int:
        return self.nop

    def __getitem__(self, k: int) -> Any:
        return self._element(range(self.nop)[k])

    def __setitem__(self, k: int, value: Any) -> None:
        self._element(range(self.nop)[k])[...] = value

    def _element(self, k: int) -> TracedArray:
        x = self.operands[k]
        index: Sequence[int] = self._indices[self._at][len(self.shape) - x.ndim :]
        element = x[(*(i if n > 1 else 0 for i, n in zip(index, x.shape, strict=True)), ...)]
        if self._readonly[k]:
            element.readonly = READONLY
        return element


@twin(np.nditer)
def nditer(op: Any, *args: Any, **kwargs: Any) -> Any:
    return Nditer(op, *args, **kwargs) if holds_traced(op) else np.nditer(op, *args, **kwargs)


class Broadcast:
    """An iterator over tuples of the elements of several arrays that are broadcast against each other."""

    def __init__(self, *args: Any) -> None:
        self._arrays = np.broadcast_arrays(*map(as_traced, args))
        self.shape = self._arrays[0].shape
        self.nd = self.ndim = len(self.shape)
        self.size, self.numiter = math.prod(self.shape), len(args)
        self.reset()

    def reset(self) -> None:
        self.index = 0

    @property
    def iters(self) -> tuple[Any, ...]:
        return tuple(x.flat for x in self._arrays)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.index >= self.size:
            raise StopIteration
        at = tuple(map(int, np.unravel_index(self.index, self.shape)))
        self.index += 1
        return tuple(x[at] for x in self._arrays)


@twin(np.broadcast)
def broadcast(*args: Any) -> Any:
    return Broadcast(*args) if holds_traced(args) else np.broadcast(*args)
