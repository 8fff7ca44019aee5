"""Products of arrays (matmul, dot, einsum and similar functions), all lowered to the IR's ``contract`` of two operands.

A contraction has a label, a single letter, for each axis. An axis of extent 1 that broadcasts is left out of its operand, so
no broadcast array is stored. Products of bools are disjunctions of conjunctions, as in NumPy.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import extents_differ, is_value_size, shapes_differ
from pullback.tracer.arrays.arguments import as_array, axis_of, existing, permute, refuse, remove_axes, reshaped, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_to,
    cast,
    emit,
    expand,
    is_one,
    promote,
    sample_of,
    with_extents,
    wrapping,
)
from pullback.tracer.arrays.promotion import composition
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.reductions import reduced
from pullback.tracer.functions.numpy.shape import diagonal

Labels = str


def _one_label_each(x: TracedArray, labels: Labels) -> tuple[TracedArray, Labels]:
    """Replace axes with repeated labels by a diagonal, so that each label occurs once."""
    for letter in dict.fromkeys(labels):
        while labels.count(letter) > 1:
            i = labels.index(letter)
            j = labels.index(letter, i + 1)
            x = diagonal(x, 0, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + letter
    return x, labels


def _summed(x: TracedArray, labels: Labels, keep: str) -> tuple[TracedArray, Labels]:
    """Sum over the axes whose labels are not in ``keep``."""
    axes = tuple(k for k, letter in enumerate(labels) if letter not in keep)
    total = reduced("sum", x, axes)
    return total, "".join(letter for letter in labels if letter in keep)


def _without_units(x: TracedArray, labels: Labels, extents: dict[str, int]) -> tuple[TracedArray, Labels]:
    """Remove axes of extent 1 whose label has a larger extent."""
    axes = [k for k, letter in enumerate(labels) if is_one(x.shape[k]) and not is_one(extents[letter])]
    return remove_axes(x, axes), "".join(letter for k, letter in enumerate(labels) if k not in axes)


def contraction(operands: Sequence[tuple[TracedArray, Labels]], out: Labels) -> TracedArray:
    """Return the sum of products of one or two operands of one numeric dtype over the labels that ``out`` lacks."""
    extents: dict[str, int] = {}
    for x, labels in operands:
        for n, letter in zip(x.shape, labels, strict=True):
            if is_one(extents.setdefault(letter, n)):
                extents[letter] = n
            if is_value_size(extents[letter]) and not is_one(n):
                extents[letter] = n
            if not is_one(n) and extents_differ(n, extents[letter]):
                raise ValueError(f"operands do not agree on the extent of {letter!r}: {extents[letter]} and {n}")
    operands = [(with_extents(x, [extents[letter] for letter in labels]), labels) for x, labels in operands]
    prepared = [_one_label_each(x, labels) for x, labels in operands]
    prepared = [_without_units(x, labels, extents) for x, labels in prepared]
    if len(prepared) == 1:
        result, labels = _summed(*prepared[0], out)
    else:
        (x, left), (y, right) = prepared
        x, left = _summed(x, left, out + right)
        y, right = _summed(y, right, out + left)
        present = "".join(k for k in out if k in left or k in right)
        result, labels = emit("contract", x, y, spec=f"{left},{right}->{present}"), present
    result = permute(result, [labels.index(k) for k in out if k in labels])
    missing = [k for k, letter in enumerate(out) if letter not in labels]
    return broadcast_to(expand(result, missing), tuple(extents[k] for k in out)) if missing else result


def _product(operands: Sequence[tuple[TracedArray, Labels]], out: Labels) -> TracedArray:
    """Return the ``contraction`` for any dtype; bools are contracted as integers and compared with 0."""
    if operands[0][0].dtype != np.bool_:
        return contraction(operands, out)
    counted = [(cast(x, np.int64), labels) for x, labels in operands]
    return contraction(counted, out) != 0


def _letters(count: int, start: int = 0) -> Labels:
    return string.ascii_letters[start : start + count]


@composition(np.matmul)
@implements(np.matmul)
def matmul(x1: Any, x2: Any, /, out: Any = None, **kwargs: Any) -> TracedArray:
    dtype = kwargs.pop("dtype", None)
    refuse("matmul", **kwargs)
    x, y = _pair(x1, x2, dtype)
    if x.ndim == 0 or y.ndim == 0:
        np.matmul(*(sample_of(as_traced(v)) for v in (x1, x2)), dtype=dtype)  # raises NumPy's error
    k, m = x.shape[-1], y.shape[0 if y.ndim == 1 else -2]
    _refuse_mismatch("matmul", "(n?,k),(k,m?)->(n?,m?)", k, m)
    rows, columns = "i" if x.ndim > 1 else "", "j" if y.ndim > 1 else ""
    left, right = _batched(x, rows + "k"), _batched(y, "k" + columns)
    _refuse_batches(x, y, len(rows), len(columns))
    batch = max(left[: -1 - len(rows)], right[: -1 - len(columns)], key=len)
    return _product([(x, left), (y, right)], batch + rows + columns)


def _refuse_batches(x: TracedArray, y: TracedArray, rows: int, columns: int) -> None:
    batches = x.shape[: x.ndim - 1 - rows], y.shape[: y.ndim - 1 - columns]
    if all(not extents_differ(n, m) or is_one(n) or is_one(m) for n, m in zip(batches[0][::-1], batches[1][::-1], strict=False)):
        return
    parts = (
        f"{_text(a)}->({','.join([*map(str, batch), *['newaxis'] * (rows + columns)])})"
        for a, batch in zip((x, y), batches, strict=True)
    )
    core = (x.shape[-2],) * rows + (y.shape[-1],) * columns
    raise ValueError(
        "operands could not be broadcast together with remapped shapes [original->remapped]: "
        f"{' '.join(parts)}  and requested shape ({','.join(map(str, core))}{',' if len(core) == 1 else ''})"
    )


def _batched(x: TracedArray, core: Labels) -> Labels:
    """Return labels for ``x``: ``core`` for its last axes, upper-case letters aligned at the right for its batch axes."""
    count = x.ndim - len(core)
    return string.ascii_uppercase[26 - count :] + core


def strong(x: Any) -> TracedArray:
    """Return a traced array whose dtype takes part in promotion, as that of np.asarray does."""
    return wrapping(as_traced(x))


def _pair(x1: Any, x2: Any, dtype: Any = None) -> tuple[TracedArray, TracedArray]:
    x, y = strong(x1), strong(x2)
    if dtype is not None:
        return cast(x, dtype), cast(y, dtype)
    x, y = promote(x, y)
    return x, y


@composition(np.vecdot)
def vecdot(x1: Any, x2: Any, /, out: Any = None, *, axis: int = -1, **kwargs: Any) -> TracedArray:
    dtype = kwargs.pop("dtype", None)
    refuse("vecdot", **kwargs)
    x, y = _pair(x1, x2, dtype)
    x, y = xp.moveaxis(x, axis, -1), xp.moveaxis(y, axis, -1)
    _refuse_mismatch("vecdot", "(n),(n)->()", x.shape[-1], y.shape[-1])
    left, right = _batched(x, "k"), _batched(y, "k")
    return _product([(_conjugated(x), left), (y, right)], max(left, right, key=len)[:-1])


def matvec(x1: Any, x2: Any, /, out: Any = None, **kwargs: Any) -> TracedArray:
    """Multiply matrices by vectors in the last axes."""
    _refuse_scalar("matvec", "(m,n),(n)->(m)", (x1, 2), (x2, 1))
    _refuse_mismatch("matvec", "(m,n),(n)->(m)", as_traced(x1).shape[-1], as_traced(x2).shape[-1])
    return xp.squeeze(matmul(x1, xp.expand_dims(as_traced(x2), -1), **kwargs), -1)


def vecmat(x1: Any, x2: Any, /, out: Any = None, **kwargs: Any) -> TracedArray:
    """Multiply vectors, conjugated if complex, by matrices in the last axes."""
    _refuse_scalar("vecmat", "(n),(n,m)->(m)", (x1, 1), (x2, 2))
    _refuse_mismatch("vecmat", "(n),(n,m)->(m)", as_traced(x1).shape[-1], as_traced(x2).shape[-2])
    return xp.squeeze(matmul(xp.expand_dims(_conjugated(as_traced(x1)), -2), x2, **kwargs), -2)


def _refuse_mismatch(name: str, signature: str, first: int, second: int) -> None:
    if extents_differ(first, second):
        raise ValueError(
            f"{name}: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature {signature} "
            f"(size {second} is different from {first})"
        )


def _refuse_scalar(name: str, signature: str, *operands: tuple[Any, int]) -> None:
    for k, (x, rank) in enumerate(operands):
        if np.ndim(x) < rank:
            raise ValueError(
                f"{name}: Input operand {k} does not have enough dimensions (has {np.ndim(x)}, gufunc core with signature "
                f"{signature} requires {rank})"
            )


for _ufunc in existing("matvec", "vecmat"):
    composition(_ufunc)(matvec if _ufunc.__name__ == "matvec" else vecmat)


@register_method("dot")
@implements(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> TracedArray:
    x, y = _pair(a, b)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    inner = 0 if y.ndim == 1 else y.ndim - 2
    if extents_differ(x.shape[-1], y.shape[inner]):
        raise ValueError(
            f"shapes {_text(x)} and {_text(y)} not aligned: {x.shape[-1]} (dim {x.ndim - 1}) != {y.shape[inner]} (dim {inner})"
        )
    return _contract_axes(x, y, [x.ndim - 1], [inner])


def _text(x: TracedArray) -> str:
    return str(x.shape).replace(" ", "")


def _contract_axes(x: TracedArray, y: TracedArray, x_axes: Sequence[int], y_axes: Sequence[int]) -> TracedArray:
    """Return the sum of products over paired axes; the result has the other axes of ``x``, then those of ``y``."""
    left = list(_letters(x.ndim))
    right = list(_letters(y.ndim, x.ndim))
    for i, j in zip(x_axes, y_axes, strict=True):
        right[j] = left[i]
    out = [k for n, k in enumerate(left) if n not in x_axes] + [k for n, k in enumerate(right) if n not in y_axes]
    return _product([(x, "".join(left)), (y, "".join(right))], "".join(out))


def _conjugated(x: TracedArray) -> Any:
    return xp.conjugate(x) if x.dtype.kind == "c" else x


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> TracedArray:
    x, y = _conjugated(as_traced(a)), as_traced(b)
    if extents_differ(x.size, y.size):
        raise ValueError(f"cannot reshape array of size {y.size} into shape ({x.size},)")
    return dot(reshaped(x, (x.size,)), reshaped(y, (y.size,)))


@implements(np.inner)
def inner(a: Any, b: Any, /) -> TracedArray:
    x, y = _pair(a, b)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return dot(x, xp.moveaxis(y, -1, max(y.ndim - 2, 0)))


@implements(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> TracedArray:
    x, y = strong(a), strong(b)
    return reshaped(x, (x.size, 1)) * reshaped(y, (1, y.size))


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> TracedArray:
    x, y = _pair(a, b)
    if not isinstance(axes, tuple | list) and np.ndim(axes) == 0:
        count = operator.index(axes)
        x_axes, y_axes = list(range(x.ndim - count, x.ndim)), list(range(count))
    else:
        x_given, y_given = (k if isinstance(k, tuple | list) else (k,) for k in axes)
        x_axes, y_axes = [axis_of(k, x.ndim) for k in x_given], [axis_of(k, y.ndim) for k in y_given]
    if len(x_axes) != len(y_axes) or shapes_differ([x.shape[k] for k in x_axes], [y.shape[k] for k in y_axes]):
        raise ValueError("shape-mismatch for sum")
    return as_array(_contract_axes(x, y, x_axes, y_axes))


@implements(np.kron)
def kron(a: Any, b: Any) -> TracedArray:
    x, y = strong(a), strong(b)
    rank = max(x.ndim, y.ndim)
    x = reshaped(x, (1,) * (rank - x.ndim) + x.shape)
    y = reshaped(y, (1,) * (rank - y.ndim) + y.shape)
    product = expand(x, range(1, 2 * rank, 2)) * expand(y, range(0, 2 * rank, 2))
    return reshaped(product, [n * m for n, m in zip(x.shape, y.shape, strict=True)])


@implements(np.cross)
def cross(a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1, axis: Any = None) -> TracedArray:
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = strong(a), strong(b)
    x, y = xp.moveaxis(x, axis_of(axisa, x.ndim), -1), xp.moveaxis(y, axis_of(axisb, y.ndim), -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
            f"{x.shape[-1]} and {y.shape[-1]} dimensional instead."
        )
    u = [x[..., k] for k in range(x.shape[-1])]
    v = [y[..., k] for k in range(y.shape[-1])]
    last = u[0] * v[1] - u[1] * v[0]
    if len(u) == 2 and len(v) == 2:
        return as_array(last)
    if len(v) == 2:
        first, second = -(u[2] * v[1]), u[2] * v[0]
    elif len(u) == 2:
        first, second = u[1] * v[2], -(u[0] * v[2])
    else:
        first, second = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2]
    result = np.stack([first, second, last], -1)
    return xp.moveaxis(result, -1, axis_of(axisc, result.ndim))
