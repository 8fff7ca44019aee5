"""Arrays computed from sizes alone, as by ``np.arange(len(x))``: the same NumPy calls recompute them for other sizes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import numpy as np

from pullback.ir.shapes.symbolic import KINDS, Number, Recorder, bound, is_data, is_number, sizes_in

MUTATING_METHODS = ("sort", "fill", "put", "resize", "partition", "setflags", "setfield", "byteswap", "itemset", "tofile")
"""Methods of arrays that write into them."""


Operator = Callable[[Any, Any], Any]


def _operator(ufunc: np.ufunc, function: Operator) -> tuple[Operator, Operator]:
    """Return the operator of a ufunc and its reflected form."""

    def forward(self: SymbolicArray, other: Any) -> Any:
        if is_static(other):
            return self.sizes.apply(function, (self, other))
        return ufunc(self, other) if hasattr(type(other), "__array_ufunc__") else NotImplemented

    def reflected(self: SymbolicArray, other: Any) -> Any:
        return self.sizes.apply(function, (other, self)) if is_static(other) else NotImplemented

    return forward, reflected


def is_static(x: Any) -> bool:
    """Return whether a value is a number, a NumPy array or a list of these."""
    return is_number(x) or isinstance(x, np.ndarray) or (isinstance(x, list | tuple) and all(map(is_static, x)))


class SymbolicArray(Number):
    """An array computed from sizes. NumPy's results from it and other symbolic values are symbolic too. A function that writes
    into one is traced again with concrete sizes."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape, as symbolic sizes."""
        return tuple(self.sizes.apply(_extent, (self, k)) for k in range(self.value.ndim))

    @property
    def size(self) -> Any:
        """The number of elements, as a symbolic size."""
        return self.sizes.apply(np.size, (self,))

    @property
    def T(self) -> Any:
        """The transposed array."""
        return self.sizes.apply(np.transpose, (self,))

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "ndim", "itemsize"):
            return getattr(self.value, name)
        if name in MUTATING_METHODS:
            self.refuse()
        attribute = getattr(np.ndarray, name, None)
        if callable(attribute) and not name.startswith("__"):
            return partial(self._called, name)
        return getattr(self.pinned(), name)

    def _called(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of NumPy arrays."""
        function = getattr(np.ndarray, name)
        if kwargs.get("out") is not None:
            self.refuse()
        if sizes_in(kwargs.values()) is not None or not all(map(is_data, (*args, *kwargs.values()))):
            return getattr(self.pinned(), name)(*args, **kwargs)
        return self.sizes.apply(bound(function, kwargs), (self, *args))

    def __len__(self) -> int:
        return len(self.pinned())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.pinned())

    def __contains__(self, value: Any) -> bool:
        return value in self.pinned()

    def __getitem__(self, key: Any) -> Any:
        if all(map(is_data, key if isinstance(key, tuple) else (key,))):
            return self.sizes.apply(operator.getitem, (self, key))
        return self.pinned()[key]

    def refuse(self, *args: Any) -> NoReturn:
        """Raise TypeError, and mark the trace as serving no other call."""
        self.sizes.refused = "the function writes into an array that NumPy made of sizes"
        raise TypeError(self.sizes.refused)

    __setitem__ = __delitem__ = refuse

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            self.refuse()
        if not all(map(is_static, inputs)):
            return NotImplemented
        if sizes_in(kwargs.values()) is not None or not all(map(is_data, (*inputs, *kwargs.values()))):
            return getattr(ufunc, method)(*map(_pinned, inputs), **{k: _pinned(v) for k, v in kwargs.items()})
        function = getattr(ufunc, method)
        with np.errstate(all="ignore"):
            return self.sizes.apply(bound(function, kwargs), inputs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            self.refuse()
        if any(not issubclass(t, np.ndarray | Number) for t in types):
            return NotImplemented
        if sizes_in(kwargs.values()) is not None or not all(map(is_data, (*args, *kwargs.values()))):
            return function(*map(_pinned, args), **{k: _pinned(v) for k, v in kwargs.items()})
        return self.sizes.apply(bound(function, kwargs), tuple(args))

    __add__, __radd__ = _operator(np.add, operator.add)
    __sub__, __rsub__ = _operator(np.subtract, operator.sub)
    __mul__, __rmul__ = _operator(np.multiply, operator.mul)
    __truediv__, __rtruediv__ = _operator(np.true_divide, operator.truediv)
    __floordiv__, __rfloordiv__ = _operator(np.floor_divide, operator.floordiv)
    __mod__, __rmod__ = _operator(np.remainder, operator.mod)
    __pow__, __rpow__ = _operator(np.power, operator.pow)
    __matmul__, __rmatmul__ = _operator(np.matmul, operator.matmul)
    __and__, __rand__ = _operator(np.bitwise_and, operator.and_)
    __or__, __ror__ = _operator(np.bitwise_or, operator.or_)
    __xor__, __rxor__ = _operator(np.bitwise_xor, operator.xor)
    __lshift__, __rlshift__ = _operator(np.left_shift, operator.lshift)
    __rshift__, __rrshift__ = _operator(np.right_shift, operator.rshift)
    __lt__, __le__ = _operator(np.less, operator.lt)[0], _operator(np.less_equal, operator.le)[0]
    __gt__, __ge__ = _operator(np.greater, operator.gt)[0], _operator(np.greater_equal, operator.ge)[0]
    __eq__, __ne__ = _operator(np.equal, operator.eq)[0], _operator(np.not_equal, operator.ne)[0]
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = __imatmul__ = refuse
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = refuse


def _pinned(x: Any) -> Any:
    """Return an argument of a call that is not recorded, with its values pinned."""
    return x.pinned() if type(x) in KINDS else type(x)(map(_pinned, x)) if type(x) in (tuple, list) else x


def _extent(x: Any, axis: int) -> int:
    return int(x.shape[axis])


KINDS.add(SymbolicArray)


def symbolic_value(sizes: Recorder, atom: int, value: Any) -> Any:
    """Return the symbolic number or array of an atom."""
    return (SymbolicArray if isinstance(value, np.ndarray) else Number)(sizes, atom, value)


def is_masked(x: object) -> bool:
    """Return whether an object is a masked array. If ``numpy.ma`` has not been imported, there is none; it is not imported for
    the test, since the import is slow, and a fork meanwhile would leave the child waiting for the import lock."""
    return isinstance(x, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))
