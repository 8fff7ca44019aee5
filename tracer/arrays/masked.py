"""Elements of an array selected by a traced mask: a value whose shape depends on values, of which the trace keeps all
elements.

Elementwise functions, reductions, indices, and writes under its mask keep all elements, so that they can be mapped; any other
use gathers the selected ones into an array, whose length is an extent by value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from pullback.ir import Instruction, Value
from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.frame import current, frame_of
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast, emit, fresh, full, is_one, number_of_extent
from pullback.tracer.arrays.tables import HOOKS
from pullback.tracer.arrays.traced import Gathers, TracedArray
from pullback.tracer.user_code.errors import TraceError, user_site

# NumPy, called with traced arrays, which its type stubs do not cover.
xp: Any = np
MASK = "keep all elements: np.where(mask, x, 0), or where=mask in np.sum, np.mean, np.max and their like"
COUNTS = "; or have them counted by pb.jit(guards=True)"
DATA_DEPENDENT = f"the shape of its result depends on values; {MASK}"


def _operators(ufunc: np.ufunc) -> Any:
    def forward(self: Selection, other: Any) -> Any:
        return masked_or_gathered(lambda: self.applied(ufunc, self, other), ufunc, self, other)

    def reflected(self: Selection, other: Any) -> Any:
        return masked_or_gathered(lambda: self.applied(ufunc, other, self), ufunc, other, self)

    def in_place(self: Selection, other: Any) -> Any:
        if self.is_shared:
            HOOKS["operate_in_place"](ufunc, self.elements(), gathered(other))
            return self
        target = fresh(self.values)
        if not isinstance(other, Selection) and as_traced(other).ndim > self.ndim:
            count = "n" if self.mask.size else "0"
            own = (*map(str, self.values.shape[: self.axis]), count, *map(str, self.values.shape[self.axis + self.mask.ndim :]))
            lead = map(str, as_traced(other).shape[: as_traced(other).ndim - self.ndim])
            shapes = [f"({','.join(s)}{',' if len(s) == 1 else ''})" for s in (own, (*lead, *own))]
            raise ValueError(
                f"non-broadcastable output operand with shape {shapes[0]} doesn't match the broadcast shape {shapes[1]}"
            )
        if holds_written(other):
            other = gathered(other)
        HOOKS["operate_in_place"](ufunc, target, self.aligned(other))
        self.values, self.along = target, None
        return self

    return forward, reflected, in_place


class Unmasked(Exception):
    """Raised by an operation on a selection that cannot keep all elements: it needs the selected ones."""


def masked_or_gathered(masked: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return ``masked()``, or, where that raises Unmasked or does not take such arguments, ``function`` of the arguments with
    the selected elements."""
    if not holds_written((args, list(kwargs.values()))):
        try:
            return masked()
        except (Unmasked, TypeError):
            pass
    return function(*map(gathered, args), **{k: gathered(v) for k, v in kwargs.items()})


def holds_written(x: Any) -> bool:
    """Return whether a value is, or holds in tuples and lists, a selection whose array was written."""
    return x.is_written if isinstance(x, Selection) else type(x) in (tuple, list) and any(map(holds_written, x))


def holds_selection(x: Any) -> bool:
    """Return whether a value is, or holds in tuples, lists and dicts, a selection."""
    if type(x) is dict:
        return any(map(holds_selection, x.values()))
    return isinstance(x, Selection) or (type(x) in (tuple, list) and any(map(holds_selection, x)))


def of_selections(function: Any, traced: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function of NumPy with selections among its arguments; ``traced`` takes traced arrays."""

    def masked() -> Any:
        if function not in FUNCTIONS:
            raise Unmasked
        return FUNCTIONS[function](*args, **kwargs)

    return masked_or_gathered(masked, traced, *args, **kwargs)


def unwritten(x: Any) -> Any:
    """Replace selections whose array was written, in tuples too, by that array."""
    if type(x) is tuple:
        return tuple(map(unwritten, x))
    return x.elements() if isinstance(x, Selection) and x.is_written else x


def gathered(x: Any) -> Any:
    """Replace selections, in tuples, lists and dicts too, by arrays of their elements; other values are unchanged."""
    if isinstance(x, Selection):
        return x.elements()
    if type(x) is dict:
        items: Any = {key: gathered(value) for key, value in x.items()}
        return items if any(items[key] is not x[key] for key in x) else x
    if not isinstance(x, tuple | list):
        return x
    items = list(map(gathered, x))
    if all(a is b for a, b in zip(items, x, strict=True)):
        return x
    return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)


def counted(chosen: Selection) -> Any:
    """Return a selection; or, where branches are followed and a shape was needed, the selected elements, their number guarded."""
    root = frame_of().root
    if not (root.counts_chosen and root.outcomes.follows):
        return chosen
    packed, count = chosen.packed()
    return packed[(slice(None),) * chosen.axis + (slice(operator.index(HOOKS["as_int"](count))),)]


class Selection(Gathers):
    """The elements of ``values`` where ``mask`` holds, in row-major order of the mask.

    The mask's axes are those of ``values`` from ``axis`` on; in the selection they are one axis. ``what`` describes the
    selecting expression for errors. If ``along`` is set, the values are the positions along that axis of the mask.
    ``is_computed``: the values were computed under the mask, so that those that are not selected may be nan or infinite.

    ``_array`` is the array of the selected elements, once an operation has needed it; after a write into it, which is counted by
    ``_version``, it stands for the selection. ``_base``: the selection of which this one is a view, and the function that takes
    the view of its array.
    """

    stands_for = np.ndarray
    """The class that ``isinstance`` and ``type`` report in a traced function."""

    __slots__ = (
        "_array", "_base", "_frame", "_site", "_version", "_viewed", "along", "axis", "is_computed", "mask", "values", "what",
    )  # fmt: skip
    __array_priority__ = 2000.0

    def __init__(self, values: TracedArray, mask: TracedArray, axis: int, what: str, site: Any = None, along: Any = None) -> None:
        self.values, self.mask, self.axis = fresh(values), fresh(mask), axis
        self.what, self.along, self.is_computed = what, along, False
        self._site = site or user_site()
        self._frame = current()
        self._array: TracedArray | None = None
        self._version = 0
        self._base: tuple[Selection, Callable[[Any], Any]] | None = None
        self._viewed = False

    def refusal(self) -> TraceError:
        """Return the error for an unsupported use."""
        frame = current()
        follows = "" if frame is not None and frame.root.counts_chosen else COUNTS
        error = TraceError(f"{self.what}: {DATA_DEPENDENT}{follows}", site=self._site)
        error.wants_counts = True
        error.wants_traced = frame is not None and frame.root.rolls and not frame.root.traces_made
        return error

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self.refusal()

    __len__ = __iter__ = __bool__ = __float__ = __int__ = __index__ = __hash__ = __contains__ = _refuse
    __reduce_ex__ = _refuse

    def __setitem__(self, key: Any, value: Any) -> None:
        if current() is not self._frame and self._array is None:
            raise self.refusal()
        self.elements()[gathered(key)] = gathered(value)

    @property
    def is_written(self) -> bool:
        """Whether the array of the selected elements was written, so that it stands for the selection."""
        if self._array is None:
            return self._base is not None and self._base[0].is_written
        return HOOKS["version_of"](self._array) != self._version

    @property
    def is_shared(self) -> bool:
        """Whether other arrays or selections may be views of this one, or this one is a view."""
        return self._array is not None or self._base is not None or self._viewed

    def elements(self) -> TracedArray:
        """Return the selected elements as an array, whose extent along the axis is by value; the same one each time."""
        if self._array is not None:
            return self._array
        if self._base is not None:
            base, take = self._base
            array, version = take(base.elements()), base._version
        else:
            array, version = self._gathered(), 0
        if current() is self._frame:
            self._array, self._version = array, version
        return array

    def _gathered(self) -> TracedArray:
        flat = self.line()
        taken: TracedArray = emit("gather", flat.readable(), self.positions(), axes=(flat.axis,))
        if flat.axis:
            perm = [*range(1, flat.axis + 1), 0, *range(flat.axis + 1, taken.ndim)]
            taken = emit("transpose", taken, perm=tuple(perm))
        return fresh(taken)

    def positions(self) -> TracedArray:
        """Return the positions at which the flattened mask holds, in ascending order; their extent is by value."""
        frame = frame_of(self.mask)
        earlier = frame.selected_by(self.mask)
        if earlier is not None:
            return earlier  # type: ignore[return-value]
        mask = frame.lift(self.mask)
        if mask not in frame.selected:
            n = self.mask.size
            extent = HOOKS["value_extent"](as_traced(xp.sum(self.mask)), least=0, most=n)
            target = xp.where(self.mask.reshape(-1), self.rank(), n)
            order = as_traced(lifted(np.arange, n))
            source = emit("scatter_set", full((n + 1,), 0, np.int64), cast(target, np.int64), order, axes=(0,))
            frame.selected[mask] = emit("slice", source, start=(0,), step=(1,), shape=(extent,))
        positions: TracedArray = frame.selected[mask]  # type: ignore[assignment]
        return positions

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.elements()

    def __repr__(self) -> str:
        return f"traced selection of {self.values.type}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self.elements(), name)
        return HOOKS["number_of_size"](value) if is_value_size(value) else value

    # properties

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return self.values.ndim - self.mask.ndim + 1

    @property
    def count(self) -> Any:
        """The number of elements along its axis, a traced int."""
        return HOOKS["as_int"](xp.sum(self.mask))

    @property
    def shape(self) -> tuple[Any, ...]:
        before, after = self.values.shape[: self.axis], self.values.shape[self.axis + self.mask.ndim :]
        shape = (*before, self.count, *after)
        return tuple(HOOKS["number_of_size"](n) if is_value_size(n) else n for n in shape)

    @property
    def size(self) -> Any:
        others = math.prod(self.values.shape[: self.axis] + self.values.shape[self.axis + self.mask.ndim :])
        return (HOOKS["number_of_size"](others) if is_value_size(others) else others) * self.count

    def like(self, values: TracedArray, axis: int | None = None, is_computed: bool = True) -> Selection:
        """Return other values under the same mask."""
        result = Selection(values, self.mask, self.axis if axis is None else axis, self.what, self._site)
        result.is_computed = is_computed
        return result

    def whole_mask(self) -> TracedArray:
        """Return the mask broadcast to the shape of the values."""
        after = self.values.ndim - self.axis - self.mask.ndim
        spread = self.mask.reshape((1,) * self.axis + self.mask.shape + (1,) * after)
        return broadcast_to(spread, self.values.shape)

    def filled(self, value: Any) -> Any:
        """Return all values, with ``value`` where the mask does not hold."""
        mask, x = self.whole_mask(), self.values
        return emit("select", mask, x, full(x.shape, value, x.dtype))

    def readable(self) -> Any:
        """Return all values, to be read where the mask holds: no derivative passes through the other ones, which may be nan."""
        return self.filled(0) if self.is_computed and self.dtype.kind in "fc" else self.values

    def line(self) -> Selection:
        """Return the selection with a flattened mask."""
        if self.mask.ndim == 1:
            return self
        shape = self.values.shape
        flat = (*shape[: self.axis], self.mask.size, *shape[self.axis + self.mask.ndim :])
        result = Selection(self.values.reshape(flat), self.mask.reshape(-1), self.axis, self.what, self._site)
        result.is_computed = self.is_computed
        return result

    def rank(self) -> Any:
        """Return, for each element of the flattened mask, the number of true elements before it."""
        return xp.maximum(xp.cumsum(self.mask.reshape(-1)) - 1, 0)

    def packed(self) -> tuple[Any, Any]:
        """Return the selected values contiguously along the axis, followed by unspecified ones, and the number selected."""
        flat = self.line()
        n = flat.mask.size
        target = xp.where(flat.mask, flat.rank(), n)
        order = as_traced(lifted(np.arange, n))
        source = emit("scatter_set", full((n + 1,), 0, np.int64), cast(target, np.int64), order, axes=(0,))
        return xp.take(flat.readable(), source[:n], axis=flat.axis), xp.sum(flat.mask)

    # elementwise

    def applied(self, ufunc: Any, *operands: Any, **kwargs: Any) -> Any:
        """Apply an elementwise function to selections and arrays."""
        selections = [s for s in operands if isinstance(s, Selection)]
        first = max(selections, key=lambda s: s.ndim)
        axis = first.axis
        lead = max((_rank(o) for o in operands), default=0) - first.ndim
        if lead > 0:
            first = first.like(first.values.reshape((1,) * lead + first.values.shape), axis + lead)
        result = ufunc(*(first.aligned(o) for o in operands), **kwargs)
        if isinstance(result, tuple):
            return tuple(first.like(as_traced(r)) for r in result)
        return first.like(as_traced(result))

    def aligned(self, other: Any) -> Any:
        """Return an operand aligned with this selection's values."""
        if isinstance(other, Selection):
            if other.ndim - other.axis == self.ndim - self.axis:
                return other.values if same_mask(self.mask, other.mask) else self.spread(*other.packed(), other.axis)
            self.unmask()
        x = other if isinstance(other, TracedArray) else as_traced(other)
        behind = self.ndim - self.axis
        if x.ndim < behind:
            return x
        axis = x.ndim - behind
        if is_one(x.shape[axis]):
            return x.reshape((*x.shape[:axis], *(1,) * self.mask.ndim, *x.shape[axis + 1 :]))
        return self.spread(x, number_of_extent(x.shape[axis]), axis)

    def spread(self, packed: TracedArray, count: TracedArray, axis: int, message: str = "") -> Any:
        """Move values packed along an axis to their positions in this mask. Emits a check that their number is the mask's."""
        selected = xp.sum(self.mask)
        text = message or "operands could not be broadcast together: a mask chooses another number of elements"
        emit("check", as_traced(selected == count), error="ValueError", message=text)
        shape = packed.shape
        if is_value_size(shape[axis]):
            count = number_of_extent(shape[axis])
            empty = full((*shape[:axis], 1, *shape[axis + 1 :]), 0, packed.dtype)
            spread_values = xp.take(xp.concatenate([packed, empty], axis=axis), xp.minimum(self.rank(), count), axis=axis)
            return spread_values.reshape((*shape[:axis], *self.mask.shape, *shape[axis + 1 :]))
        if not shape[axis]:
            return full((*shape[:axis], *self.mask.shape, *shape[axis + 1 :]), 0, packed.dtype)
        spread_values = xp.take(packed, xp.minimum(self.rank(), shape[axis] - 1), axis=axis)
        return spread_values.reshape((*shape[:axis], *self.mask.shape, *shape[axis + 1 :]))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return masked_or_gathered(
            lambda: self.ufunc(ufunc, method, *inputs, **kwargs),
            lambda *xs, **keywords: getattr(ufunc, method)(*xs, **keywords),
            *inputs,
            **kwargs,
        )

    def ufunc(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Call a method of a ufunc under the mask. Raises Unmasked."""
        if method == "__call__" and ufunc is np.matmul and not kwargs:
            return self.matmul(*inputs)
        if method == "reduce" and ufunc in _REDUCE and isinstance(inputs[0], Selection):
            kwargs = {
                k: v for k, v in kwargs.items() if v is not None and v is not np._NoValue and not (k == "where" and v is True)
            }
            kwargs.setdefault("axis", 0)
            return self.reduced(_REDUCE[ufunc], **kwargs)
        kwargs = {k: v for k, v in kwargs.items() if not (v is None or (k == "where" and v is True))}
        if method != "__call__" or ufunc.signature is not None or "out" in kwargs or "where" in kwargs:
            self.unmask()
        return self.applied(ufunc, *inputs, **kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        implementation = FUNCTIONS.get(function)

        def masked() -> Any:
            return self.unmask() if implementation is None else implementation(*args, **kwargs)

        return masked_or_gathered(masked, function, *args, **kwargs)

    __add__, __radd__, __iadd__ = _operators(np.add)
    __sub__, __rsub__, __isub__ = _operators(np.subtract)
    __mul__, __rmul__, __imul__ = _operators(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _operators(np.true_divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(np.floor_divide)
    __mod__, __rmod__, __imod__ = _operators(np.remainder)
    __pow__, __rpow__, __ipow__ = _operators(np.power)
    __lshift__, __rlshift__, __ilshift__ = _operators(np.left_shift)
    __rshift__, __rrshift__, __irshift__ = _operators(np.right_shift)
    __divmod__, __rdivmod__ = _operators(np.divmod)[:2]
    __and__, __rand__, __iand__ = _operators(np.bitwise_and)
    __or__, __ror__, __ior__ = _operators(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _operators(np.bitwise_xor)
    __lt__, __le__, __gt__, __ge__ = (_operators(u)[0] for u in (np.less, np.less_equal, np.greater, np.greater_equal))
    __eq__, __ne__ = (_operators(u)[0] for u in (np.equal, np.not_equal))

    def unmask(self) -> NoReturn:
        """Raise Unmasked."""
        raise Unmasked

    def __neg__(self) -> Any:
        return self._mapped(np.negative)

    def __pos__(self) -> Any:
        return self._mapped(np.positive)

    def __abs__(self) -> Any:
        return self._mapped(np.absolute)

    def __invert__(self) -> Any:
        return self._mapped(np.invert)

    def _mapped(self, ufunc: np.ufunc) -> Any:
        return masked_or_gathered(lambda: self.applied(ufunc, self), ufunc, self)

    def _view(self, view: Selection, take: Callable[[Any], Any]) -> Selection:
        """Return a selection marked as a view of this one."""
        view._base, self._viewed = (self, take), True
        return view

    def __matmul__(self, other: Any) -> Any:
        return masked_or_gathered(lambda: self.matmul(self, other), xp.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return masked_or_gathered(lambda: self.matmul(other, self), xp.matmul, other, self)

    def matmul(self, a: Any, b: Any) -> Any:
        """Return a matrix product; over the mask's axis it sums the selected elements."""
        left = a.line() if isinstance(a, Selection) else a
        right = b.line() if isinstance(b, Selection) else b
        inner_left = isinstance(left, Selection) and left.axis == left.ndim - 1
        inner_right = isinstance(right, Selection) and right.axis == max(right.ndim - 2, 0)
        if inner_left or inner_right:
            inner = left if inner_left else right
            if not (isinstance(left, Selection) and isinstance(right, Selection)):
                other = right if inner_left else left
                x = as_traced(other)
                axis = max(x.ndim - 2, 0) if inner_left else x.ndim - 1
                spread = inner.spread(x, number_of_extent(x.shape[axis]), axis)
                filled = inner.filled(0)
                return xp.matmul(filled, spread) if inner_left else xp.matmul(spread, filled)
            if not (inner_left and inner_right and same_mask(left.mask, right.mask)):
                self.unmask()
            return xp.matmul(left.filled(0), right.filled(0))
        if isinstance(left, Selection) and isinstance(right, Selection):
            self.unmask()
        if isinstance(left, Selection):
            return left.like(xp.matmul(left.values, right))
        return right.like(xp.matmul(left, right.values), None)

    # reductions

    def axes_of(self, axis: Any) -> tuple[list[int], bool]:
        """Return the axes of the values for axes of the selection, and whether the mask's axis is among them."""
        axes = range(self.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        value_axes: list[int] = []
        is_chosen = False
        for k in axes:
            at = np.lib.array_utils.normalize_axis_index(operator.index(k), self.ndim)
            if at == self.axis:
                is_chosen = True
                value_axes += range(self.axis, self.axis + self.mask.ndim)
            else:
                value_axes.append(at if at < self.axis else at + self.mask.ndim - 1)
        return value_axes, is_chosen

    def reduced(self, function: Callable[..., Any], axis: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
        """Reduce by a function that takes ``where=``, or whose identity can stand for elements left out."""
        kwargs = {k: v for k, v in kwargs.items() if v is not None and v is not np._NoValue}
        axes, is_chosen = self.axes_of(axis)
        if keepdims is True or "where" in kwargs or "out" in kwargs:
            self.unmask()
        if not is_chosen:
            values = function(self.values, axis=tuple(axes), **kwargs)
            return self.like(values, self.axis - sum(k < self.axis for k in axes))
        if function in (np.max, np.min):
            return self._extreme(function, tuple(axes), **kwargs)
        return function(self.values, axis=tuple(axes), where=self.whole_mask(), **kwargs)

    def _extreme(self, function: Any, axes: tuple[int, ...], initial: Any = None) -> Any:
        name = "maximum" if function is np.max else "minimum"
        self._check_some(f"zero-size array to reduction operation {name} which has no identity", initial)
        bound = {} if initial is None else {"initial": initial}
        return function(self.filled(_extreme_identity(self.dtype, function is np.max)), axis=axes, **bound)

    def _check_some(self, message: str, initial: Any = None) -> None:
        if initial is None:
            emit("check", as_traced(xp.any(self.mask)), error="ValueError", message=message)

    def position(self, function: Any, axis: Any = None, **kwargs: Any) -> Any:
        """Return argmax or argmin, counted among the selected elements."""
        if self.ndim > 1 or any(v is not None and v is not np._NoValue and v is not False for v in kwargs.values()):
            self.unmask()
        self._check_some(f"attempt to get {function.__name__} of an empty sequence")
        flat = self.line()
        at = function(flat.filled(_extreme_identity(self.dtype, function is np.argmax)))
        return xp.take(flat.rank(), at)

    def ordered(self) -> Selection:
        """Return the selected elements in ascending order."""
        if self.ndim > 1:
            self.unmask()
        flat = self.line()
        chosen = lifted(np.arange, flat.mask.size) < xp.sum(flat.mask)
        last = {"f": math.nan, "c": complex(math.nan, math.nan)}.get(self.dtype.kind, _extreme_identity(self.dtype, False))
        return Selection(xp.sort(flat.filled(last)), as_traced(chosen), 0, self.what, self._site)

    def median(self) -> Any:
        if not self.mask.size:
            self.unmask()
        flat = self.ordered()
        x = flat.values if flat.dtype.kind == "f" else cast(flat.values, np.float64)
        n, last = xp.sum(flat.mask), x.size - 1
        low = xp.take(x, xp.clip((n - 1) // 2, 0, last))
        high = xp.take(x, xp.clip(n // 2, 0, last))
        middle = xp.where(n > 0, (low + high) / 2, math.nan)
        return xp.where(xp.any(xp.isnan(x) & flat.mask), math.nan, middle)

    # parts

    def __getitem__(self, key: Any) -> Any:
        return masked_or_gathered(lambda: self.part(key), operator.getitem, self, key)

    def part(self, key: Any) -> Any:
        """Return the elements at a key, under the mask. Raises Unmasked."""
        items = list(key) if isinstance(key, tuple) else [key]
        if any(isinstance(i, TracedArray | Selection | np.ndarray | list) for i in items):
            if (
                len(items) == 1
                and isinstance(items[0], Selection)
                and items[0].dtype == np.bool_
                and self.ndim == items[0].ndim == 1
            ):
                inside = self.aligned(items[0])
                narrowed = Selection(self.values, xp.logical_and(self.mask, inside), self.axis, self.what, self._site)
                narrowed.is_computed = self.is_computed
                return narrowed
            self.unmask()
        if any(i is Ellipsis for i in items):
            at = next(k for k, i in enumerate(items) if i is Ellipsis)
            missing = self.ndim - sum(i is not None for i in items) + 1
            items[at : at + 1] = [slice(None)] * missing
        items += [slice(None)] * (self.ndim - sum(i is not None for i in items))
        axis, seen = 0, 0
        for at, item in enumerate(items):  # noqa: B007
            if item is not None:
                if seen == self.axis:
                    break
                seen += 1
        chosen = items[at]
        if chosen == slice(None):
            value_index = [*items[:at], *[slice(None)] * self.mask.ndim, *items[at + 1 :]]
            axis = sum(i is None or isinstance(i, slice) for i in items[:at])
            view = self.like(self.values[tuple(value_index)], axis, self.is_computed)
            return self._view(view, operator.itemgetter(key))
        if items[:at] or items[at + 1 :] != [slice(None)] * (self.ndim - 1):
            self.unmask()
        if isinstance(chosen, slice):
            return self._view(self._slice(chosen), operator.itemgetter(key))
        return self._element(operator.index(chosen))

    def _element(self, k: int) -> Any:
        flat = self.line()
        count = xp.sum(flat.mask)
        inside = count > k if k >= 0 else count >= -k
        emit(
            "check",
            as_traced(inside),
            error="IndexError",
            message=f"index {k} is out of bounds for axis 0 of the chosen elements",
        )
        ordinal = k + 1 if k >= 0 else count + k + 1
        return flat.readable()[xp.argmax(flat.mask & (xp.cumsum(flat.mask) == ordinal))]

    def _slice(self, part: slice) -> Any:
        if any(map(HOOKS["is_computed"], (part.start, part.stop))):
            self.unmask()
        start, stop, step = part.start or 0, part.stop, part.step or 1
        if step != 1 or start < 0 or self.ndim > 1:
            self.unmask()
        flat = self.line()
        packed, count = flat.packed()
        n = packed.shape[0]
        end = count if stop is None else xp.minimum(count, stop) if stop >= 0 else count + stop
        start = min(start, n)
        return Selection(packed[start:], as_traced(lifted(np.arange, start, n) < end), 0, self.what, self._site)

    @property
    def T(self) -> Any:
        if self.mask.ndim > 1 or self.is_written:
            return self.elements().T
        return self._view(self.like(self.values.T, self.values.ndim - 1 - self.axis, self.is_computed), operator.attrgetter("T"))

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        return self.elements().astype(dtype, **kwargs) if self.is_written else self.like(self.values.astype(dtype))

    def copy(self, order: str = "C") -> Any:
        return self.elements().copy(order) if self.is_written else self.like(self.values, None, self.is_computed)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def ravel(self, order: str = "C") -> Any:
        return self if self.ndim == 1 else self.elements().ravel(order)

    def method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method that is a function of NumPy."""
        function = getattr(np, name)
        return masked_or_gathered(lambda: FUNCTIONS[function](self, *args, **kwargs), function, self, *args, **kwargs)


_REDUCE: dict[Any, Any] = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min, np.logical_and: np.all, np.logical_or: np.any,
}  # fmt: skip
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
_METHODS = (
    "sum", "prod", "mean", "std", "var", "max", "min", "any", "all", "argmax", "argmin", "dot", "clip", "round", "cumsum",
    "cumprod",
)  # fmt: skip


def _method(name: str) -> Any:
    return lambda self, *args, **kwargs: self.method(name, *args, **kwargs)


for _name in _METHODS:
    setattr(Selection, _name, _method(_name))


def _rank(x: Any) -> int:
    return int(x.ndim) if isinstance(x, Selection | TracedArray) else np.ndim(x)


def _extreme_identity(dtype: np.dtype[Any], is_max: bool) -> Any:
    """Return the identity of max (``is_max``) or min for a dtype."""
    if dtype.kind == "f":
        return -math.inf if is_max else math.inf
    if dtype.kind == "c":
        return complex(-math.inf, -math.inf) if is_max else complex(math.inf, math.inf)
    if dtype.kind == "b":
        return not is_max
    limits = np.iinfo(dtype)
    return limits.min if is_max else limits.max


# comparison of masks


def same_mask(a: TracedArray, b: TracedArray) -> bool:
    """Return whether two masks are computed by the same instructions from the same values."""
    if a.shape != b.shape:
        return False
    if a.frame is not b.frame:
        frame = frame_of()
        return frame.lift(a) is frame.lift(b)
    return a.value is b.value or _same_computation(a.value, b.value, _definitions(a), 24)


def _definitions(x: TracedArray) -> dict[Value, Instruction]:
    assert x.frame is not None
    return {r: i for i in x.frame.builder.instructions for r in i.results}


def _same_computation(a: Value, b: Value, makers: dict[Value, Instruction], depth: int) -> bool:
    if a is b:
        return True
    i, j = makers.get(a), makers.get(b)
    if i is None or j is None or i.op is not j.op or i.regions or j.regions or not depth or i.op.effect != "pure":
        return False
    if repr(i.params) != repr(j.params) or len(i.operands) != len(j.operands) or i.results.index(a) != j.results.index(b):
        return False
    return all(_same_computation(x, y, makers, depth - 1) for x, y in zip(i.operands, j.operands, strict=True))


def chosen_of(key: Sequence[Any]) -> Any:
    """Return the mask whose ``np.nonzero`` positions are in a key; None for any other key."""
    if not key or not all(isinstance(k, Selection) and k.along is not None for k in key):
        return None
    mask = key[0].mask
    if [k.along for k in key] != list(range(mask.ndim)) or not all(same_mask(mask, k.mask) for k in key):
        return None
    return mask
