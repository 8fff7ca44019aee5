"""Host calls of a program: a native function, with the interface of a kernel, that runs an op in Python.

A native call is made without the interpreter's lock; ``ctypes`` acquires it for the step, in the calling thread. An exception
raised by the step is stored in that thread until the program has returned.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback.ir.core.structure import Instruction
from pullback.ir.ops.control.host import Host, sizes_by_value
from pullback.ir.shapes.extents import value_of

_NATIVE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_raised = threading.local()


class HostStep:
    """One host call for one set of sizes. ``address``: its native function, which reads one pointer per operand, and the extents
    by value of these."""

    def __init__(self, step: Instruction, sizes: Mapping[str, int]) -> None:
        assert isinstance(step.op, Host)
        self._op = step.op
        self._params = step.params
        self._inputs = len(step.operands) - step.op.outputs(step.params)
        self._shapes = [v.type.shape for v in step.operands]
        self._dtypes = [v.type.dtype.numpy for v in step.operands]
        self._sizes = sizes
        self._by_value = sizes_by_value(step)
        self._fixed = None if self._by_value else self._concrete(sizes)
        self._native = _NATIVE(self._run)
        self.address = int(ctypes.cast(self._native, ctypes.c_void_p).value or 0)

    def _concrete(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """Return the shapes of the operands."""
        return [tuple(value_of(e, sizes) for e in shape) for shape in self._shapes]

    def _run(self, slots: int) -> int:
        try:
            count = len(self._shapes)
            pointers = (ctypes.c_int64 * (count + len(self._by_value))).from_address(slots)
            shapes = self._fixed or self._concrete({**self._sizes, **dict(zip(self._by_value, pointers[count:], strict=True))})
            values = list(map(_copy, pointers[:count], shapes, self._dtypes))
            self._op.run(values, self._params)
            for pointer, value in zip(pointers[self._inputs : count], values[self._inputs :], strict=True):
                ctypes.memmove(pointer, value.ctypes.data, value.nbytes)
        except BaseException as error:
            store_exception(error)
            return 1
        return 0


def store_exception(error: BaseException) -> None:
    """Store an exception until this thread's program has returned."""
    _raised.error = error


def take_exception() -> BaseException:
    """Return, and forget, the exception that stopped this thread's last program."""
    error: BaseException = _raised.error
    del _raised.error
    return error


def _copy(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a copy of a dense buffer."""
    array = np.empty(shape, dtype)
    ctypes.memmove(array.ctypes.data, address, array.nbytes)
    return array
