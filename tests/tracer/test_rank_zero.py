"""What has rank 0 is an array in a traced function where it is one in NumPy, and a number where NumPy has a number.

The one can be written into, and is an ``np.ndarray``."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb

VALUES = (np.float64(2.0), np.array(2.0), np.int64(2), np.array(2), np.complex128(2.0), np.array(2 + 0j), np.array(True))
MORE: dict[str, tuple[Any, ...]] = {
    "pad": (1,), "reshape": ((),), "round": (1,), "clip": (0, 3), "take": (0,), "repeat": (1,), "roll": (0,), "where": (1, 2),
    "quantile": (0.5,), "percentile": (50,), "choose": ([1, 2],), "astype": (float,), "full_like": (2,),
}  # fmt: skip
"""Arguments of functions that take no number as their second one."""
LEFT_OUT = ("fix", "save", "savez", "savetxt", "fromfile", "load", "info", "show_config", "show_runtime", "printoptions")
"""``np.fix`` of two arguments writes into the second; the others read and write files or print."""


def outcome(run: Callable[[Any], Any], x: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return run(x)
    except Exception as error:
        return error


def check(run: Callable[[Any], Any], x: Any) -> int:
    """Compare whether the result of a function is an array, if it has rank 0. Returns how many were compared."""
    expected = outcome(run, copy.copy(x))
    if not isinstance(expected, np.ndarray | np.generic) or expected.ndim:
        return 0
    result = outcome(pb.jit(lambda v: isinstance(run(v), np.ndarray)), x)
    if isinstance(result, pb.TraceError):
        return 0
    assert result == isinstance(expected, np.ndarray), (x, result)
    return 1


NAMES = sorted(
    f"{module}{name}"
    for module, space in (("", np), ("linalg.", np.linalg), ("fft.", np.fft))
    for name in dir(space)
    if not name.startswith("_") and name not in LEFT_OUT
    and callable(getattr(space, name)) and not isinstance(getattr(space, name), type | types.ModuleType)
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, len(NAMES), 60))
def test_functions(first: int) -> None:
    compared = 0
    for name in NAMES[first : first + 60]:
        function: Any = np
        for part in name.split("."):
            function = getattr(function, part)
        for more in ((), MORE.get(name, (2.0,))):
            for x in VALUES:
                compared += check(lambda v: function(v, *more), x)  # noqa: B023 - called at once
    assert compared


METHODS: dict[str, Callable[[Any], Any]] = {
    "copy": lambda x: x.copy(), "astype": lambda x: x.astype(float), "reshape": lambda x: x.reshape(()),
    "squeeze": lambda x: x.squeeze(), "transpose": lambda x: x.transpose(), "T": lambda x: x.T, "conj": lambda x: x.conj(),
    "conjugate": lambda x: x.conjugate(), "round": lambda x: x.round(), "clip": lambda x: x.clip(0, 3),
    "view": lambda x: x.view(),
    "sum": lambda x: x.sum(), "prod": lambda x: x.prod(), "max": lambda x: x.max(), "mean": lambda x: x.mean(),
    "std": lambda x: x.std(), "take": lambda x: x.take(0), "argmax": lambda x: x.argmax(), "any": lambda x: x.any(),
    "byteswap": lambda x: x.byteswap(), "real": lambda x: x.real, "imag": lambda x: x.imag, "+x": lambda x: +x,
    "-x": lambda x: -x, "abs": abs, "x + 1": lambda x: x + 1, "x[()]": lambda x: x[()], "x[...]": lambda x: x[...],
    "copy.copy": copy.copy, "copy.deepcopy": copy.deepcopy, "dot": lambda x: x.dot(2.0),
    "einsum of nothing": lambda x: np.einsum("", x), "einsum": lambda x: np.einsum("i,i", np.array([x]), np.array([x])),
    "det": lambda x: np.linalg.det(np.array([[x]])), "cross": lambda x: np.cross(np.array([x, 1]), np.array([1, x])),
    "vectorize": lambda x: np.vectorize(lambda t: t + 1)(x), "tensordot": lambda x: np.tensordot([x], [x], 1),
    "broadcast_to": lambda x: np.broadcast_to(x, ()), "broadcast_arrays": lambda x: np.broadcast_arrays(x, x)[0],
    "row": lambda x: np.stack([x, x])[0], "row, ...": lambda x: np.stack([x, x])[0, ...],
    "position": lambda x: np.array([x, x])[np.array(1)], "piecewise": lambda x: np.piecewise(x, [x < 0, x >= 0], [1, 2]),
    "select": lambda x: np.select([x < 0], [x], 1), "xlogy": lambda x: scipy.special.xlogy(x, x),
    "expit": scipy.special.expit, "logsumexp": lambda x: scipy.special.logsumexp(np.array([x, x])),
    "array": lambda x: np.array(x), "array[()]": lambda x: np.array(x)[()], "array.T": lambda x: np.array(x).T,
    "vector product": lambda x: np.array([x]) @ np.array([x]), "divmod": lambda x: divmod(x, 2)[0],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
def test_methods_and_parts(name: str) -> None:
    assert sum(check(METHODS[name], x) for x in VALUES)


def test_conj_of_real_numbers_is_the_array_itself() -> None:
    def f(x: Any) -> Any:
        y = np.array(x)
        z = y.conj()
        z += 1
        return y

    assert np.array_equal(pb.jit(f)(np.arange(3.0)), f(np.arange(3.0)))


def test_a_padded_number_can_be_written_into() -> None:
    def f(x: Any, y: Any) -> Any:
        padded = np.pad(x, (1, 0))
        np.copyto(padded, y)
        return padded

    assert pb.jit(f)(np.int32(0), 5) == 5
    with pytest.raises(TypeError, match="Cannot cast scalar from dtype\\('complex128'\\) to dtype\\('int32'\\)"):
        pb.jit(f)(np.int32(0), 1 + 2j)
