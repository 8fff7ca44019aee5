"""Products whose operands do not fit: NumPy's exception with its message, from the user's own line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any
SHAPES = {"a": (3, 4), "b": (3, 5), "v": (5,), "s": (2, 3, 4), "t": (3, 4, 5), "one": ()}
MISTAKES: dict[str, Callable[..., Any]] = {
    "@": lambda a, b, **_: a @ b,
    "@ vector": lambda a, v, **_: a @ v,
    "@ vector first": lambda v, a, **_: v @ a,
    "@ number": lambda a, one, **_: a @ one,
    "@ stacks": lambda s, t, **_: s @ t,
    "@ stacks turned": lambda s, t, **_: s @ np.swapaxes(s, 1, 2)[:1] @ t,
    "@ stack by vector": lambda s, v, **_: s @ v,
    "@ turned": lambda a, b, **_: a.T @ b.T,
    "matmul": lambda a, b, **_: np.matmul(a, b),
    "matvec": lambda a, v, **_: np.matvec(a, v),
    "vecmat": lambda v, a, **_: np.vecmat(v, a),
    "vecdot": lambda a, b, **_: np.vecdot(a, b),
    "dot": lambda a, b, **_: np.dot(a, b),
    "dot method": lambda a, b, **_: a.dot(b),
    "dot of stacks": lambda s, t, **_: np.dot(t, s),
    "inner": lambda a, b, **_: np.inner(a, b),
    "inner with a vector": lambda a, v, **_: np.inner(a, v),
    "inner of stacks": lambda s, t, **_: np.inner(s, t),
    "vdot": lambda a, b, **_: np.vdot(a, b),
    "tensordot": lambda a, b, **_: np.tensordot(a, b, 1),
    "tensordot of two": lambda a, b, **_: np.tensordot(a, b),
    "tensordot of named axes": lambda a, b, **_: np.tensordot(a, b, ((0, 1), (0, 1))),
    "multi_dot": lambda a, b, **_: np.linalg.multi_dot([a, b, b.T]),
    "einsum": lambda a, b, **_: np.einsum("ij,jk", a, b),
    "einsum to a result": lambda a, b, **_: np.einsum("ij,jk->ki", a, b),
    "einsum of vectors": lambda v, a, **_: np.einsum("i,i->", v, a[0]),
    "einsum of a batch": lambda s, t, **_: np.einsum("bij,bjk->bik", s, t),
    "einsum diagonal": lambda a, **_: np.einsum("ii->i", a),
    "einsum too many letters": lambda a, b, **_: np.einsum("ijk,jk", a, b),
    "einsum too few letters": lambda a, b, **_: np.einsum("i,jk", a, b),
    "einsum letter of no operand": lambda a, b, **_: np.einsum("ij,ik->il", a, b),
    "einsum letter twice": lambda a, b, **_: np.einsum("ij,ik->ii", a, b),
    "einsum no letter": lambda a, b, **_: np.einsum("i$,ik->i", a, b),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_messages(name: str) -> None:
    function = MISTAKES[name]
    needed = function.__code__.co_varnames[: function.__code__.co_argcount]
    arguments = {n: np.ones(SHAPES[n]) for n in needed}
    for call in (function, lambda **arguments: function(**arguments) * 2.0, pb.jit(function)):
        with pytest.raises(ValueError) as info:
            call(**arguments)
        if call is function:
            expected = str(info.value)
        assert str(info.value) == expected
        assert info.type is ValueError
        frames = traceback.extract_tb(info.tb)
        assert any(f.filename == __file__ and f.lineno == function.__code__.co_firstlineno for f in frames)
    with pytest.raises(ValueError) as info:
        pb.grad(lambda arguments: np.sum(function(**arguments)))(arguments)
    assert str(info.value) == expected


def test_einsum_of_other_numbers_of_operands() -> None:
    """NumPy's words, which say of the subscripts what they say of operands."""
    a = np.ones((3, 4))
    for spec, word in (("ij,jk,kl", "more"), ("ij", "fewer")):
        with pytest.raises(ValueError, match=f"{word} operands provided"):
            pb.jit(lambda a, spec=spec: np.einsum(spec, a, a))(a)
