"""What a NumPy user writes with arrays of a device, outside compiled functions: NumPy's meaning, or an error that says what to
write instead."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import traces
from tests.support.cuda.driver_stand_in import device

__all__ = ["device"]

H = np.arange(12.0).reshape(3, 4) + 0.5
M = np.array([[True, False, True, False]] * 3)


def there(x: Any, like: Any) -> Any:
    """An array where another one is."""
    return pb.device_put(x) if isinstance(like, pb.DeviceArray) else x


def rebound(name: str, other: Any) -> Callable[[Any], Any]:
    return lambda x: getattr(operator, name)(x, other)


def filled(shape: Any, write: Callable[[Any], Any]) -> Any:
    """A NumPy array into which something was written."""
    built = np.zeros(shape)
    write(built)
    return built


ARRAYS: dict[str, Callable[[Any], Any]] = {
    **{f"x {name} 2.0": rebound(name, 2.0) for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow")},
    **{f"x {name} array": rebound(name, H) for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow")},
    "x @= a": lambda x: operator.imatmul(x, np.ones((4, 4))),
    "x += of int": lambda x: operator.iadd(x.astype(np.int64), 1),
    "x += keeps the dtype": lambda x: operator.iadd(x.astype("f4"), H),
    "x &= mask": lambda x: operator.iand(x > 3, x < 7),
    "x |= mask": lambda x: operator.ior(x > 3, M),
    "x ^= True": lambda x: operator.ixor(x > 3, True),
    "x <<= 2": lambda x: operator.ilshift(x.astype(int), 2),
    "x >>= 1": lambda x: operator.irshift(x.astype(int), 1),
    "NumPy's += x": lambda x: operator.iadd(np.ones((3, 4)), x),
    "x == number": lambda x: x == 3.5,
    "x != array": lambda x: x != H,
    "array < x": lambda x: operator.lt(H, x),
    "x <= 2": lambda x: x <= 2,
    "divmod(x, 2)": lambda x: divmod(x, 2),
    "divmod(7, x)": lambda x: divmod(7, x),
    "pow(x, 2)": lambda x: pow(x, 2),
    "2 ** x": lambda x: 2**x,
    "7 // x": lambda x: 7 // x,
    "7 % x": lambda x: 7 % x,
    "-x, +x, abs(x)": lambda x: (-x, +x, abs(x)),
    "~mask": lambda x: ~(x > 3),
    "mask + mask": lambda x: (x > 3) + (x > 2),
    "integers": lambda x: [x.astype(int) // 2, 1024 >> x.astype(int), x.astype("u1") * 2],
    "x @ array": lambda x: x @ H.T,
    "array @ x": lambda x: H.T @ x,
    "x + list": lambda x: x + [1, 2, 3, 4],
    "tuple + x": lambda x: (1, 2, 3, 4) + x,
    "float32 scalar + x": lambda x: np.float32(2) + x,
    "x of f4 * 2.5": lambda x: x.astype("f4") * 2.5,
    "x of f4 * float64 scalar": lambda x: x.astype("f4") * np.float64(2.5),
    "int8 > 300": lambda x: x.astype("i1") > 300,
    "x * complex": lambda x: x * (1 + 2j),
    "rank 0": lambda x: (x[0, 0] + 1, x[0, 0][()], x[0, 0][None], x[0, 0].sum()),
    "x[mask]": lambda x: x[x > 3],
    "x[NumPy's mask]": lambda x: x[M],
    "x[rows, mask]": lambda x: x[1:, M[0]],
    "x[mask of rows]": lambda x: x[[True, False, True]],
    "x[..., mask]": lambda x: x[..., (x > 3)[1]],
    "x[None, mask]": lambda x: x[None, x > 3],
    "x[list]": lambda x: x[[0, 2]],
    "x[lists]": lambda x: x[[0, 2], [1, 3]],
    "x[array]": lambda x: x[there(np.array([0, 2]), x)],
    "x[slices]": lambda x: (x[..., 1], x[None], x[::-1], x[1:, ::2], x[-1]),
    "NumPy's array[x]": lambda x: np.arange(20)[x.astype(int)],
    "x.T, x.mT": lambda x: (x.T, x.mT),
    "x.real, x.imag": lambda x: (x.real, (x * 1j).imag),
    "reshape": lambda x: (x.reshape(4, 3), x.reshape((4, 3)), x.reshape(-1), x.reshape(4, 3, order="F")),
    "astype": lambda x: (x.astype(np.float32), x.astype("i4"), x.astype(float, copy=False), x.astype(bool)),
    "copies": lambda x: (x.copy(), copy.copy(x), copy.deepcopy(x), x.T.copy()),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "iteration": lambda x: [row * k for k, row in enumerate(x)],
    "unpacking": lambda x: sum([*x]),
    "sum, max, sorted of Python": lambda x: [sum(x), max(x[0]), min(x[0]), *sorted(x[0]), *reversed(x)],
    "zip": lambda x: [a + b for a, b in zip(x, H, strict=True)],
    "reductions": lambda x: [x.sum(axis=1, keepdims=True), x.mean(dtype=np.float32), x.max(1), x.sum(initial=3.0), x.prod()],
    "reductions where": lambda x: [x.sum(where=M), x.std(axis=0), x.var(ddof=1), x.any(axis=0), (x > 1).all(), x.min()],
    "methods": lambda x: [x.argmax(axis=1), x.clip(1, 3), x.dot(np.ones(4)), x.take([0, 1], axis=1), x.repeat(2, axis=0)],
    "more methods": lambda x: [x.swapaxes(0, 1), x[0].searchsorted(2.0), x.conjugate(), x.trace(), x.ravel(), x.round(1)],
    "np.where": lambda x: np.where(x > 3, x, 0),
    "np.concatenate": lambda x: [np.concatenate([x, H]), np.stack([H, x]), np.vstack([x, H]), *np.split(x, 2, axis=1)],
    "np.tensordot": lambda x: [np.tensordot(x, x, ((0, 1), (0, 1))), np.tensordot(x, x.T, 1), np.einsum("ij,kj->ik", x, x)],
    "np functions": lambda x: [np.median(x), np.sort(x), np.diff(x), np.tile(x, 2), np.percentile(x, 30)],
    "np.interp": lambda x: np.interp(1.0, x[0], H[0]),
    "np comparisons": lambda x: [np.array_equal(x, H), np.allclose(x, H), np.isclose(x, H), np.isin(x, [1.5])],
    "np ufunc methods": lambda x: [np.add.reduce(x), np.add.accumulate(x), np.multiply.outer(x[0], x[0])],
    "np.full_like": lambda x: [np.full_like(x, 2), np.zeros_like(x), np.zeros(3, like=x), np.array([1, 2], like=x)],
    "np.linalg": lambda x: np.linalg.norm(x, axis=1),
    "out=": lambda x: np.add(x, 1, out=np.zeros((3, 4))),
    "out= and where=": lambda x: np.add(x, 1, out=np.zeros((3, 4)), where=M),
    "out= of another dtype": lambda x: np.add(x, 1, out=np.zeros((3, 4), "f4")),
    "out= twice": lambda x: np.divmod(x, 2, out=(np.zeros((3, 4)), None)),
    "np.sum(out=)": lambda x: np.sum(x, axis=0, out=np.zeros(4)),
    "np.copyto": lambda x: filled((3, 4), lambda a: np.copyto(a, x)),
    "np.add.at": lambda x: filled(3, lambda a: np.add.at(a, [0, 1], x[0, :2])),
    "a[...] = x": lambda x: filled((3, 4), lambda a: operator.setitem(a, ..., x)),
    "a[0, 0] = x[0, 0]": lambda x: filled((3, 4), lambda a: operator.setitem(a, (0, 0), x[0, 0])),
    "np.random": lambda x: np.random.default_rng(0).permutation(x),
}

PLAIN: dict[str, Callable[[Any], Any]] = {
    "bool": lambda x: (bool(x[:1, :1]), 1 if x[0, 0] > 0 else 2, 3.5 in x, 100 in x, any(x[0])),
    "numbers": lambda x: (int(x[1, 1]), float(x[1, 1]), complex(x[1, 1]), operator.index(x[1, 1].astype(int))),
    "rounding": lambda x: (round(x[1, 1]), round(x[1, 1] / 3, 2), math.floor(x[0, 1]), math.ceil(x[0, 1]), math.trunc(x[0, 1])),
    "as indices": lambda x: ([10, 20, 30][x[0, 1].astype(int)], list(range(x[0, 1].astype(int))), len(H[: x[0, 1].astype(int)])),
    "attributes": lambda x: (len(x), x.ndim, x.size, x.nbytes, x.itemsize, x.shape, x.dtype, np.shape(x), np.ndim(x)),
    "lists": lambda x: (x.tolist(), x.item(3), x.item(1, 2), x[0, 0].item()),
    "text": lambda x: (str(x), f"{x}", f"{x[0, 0]:.3f}", operator.mod("%.2f", x[0, 0]), str(x[0, 0])),
    "np's text": lambda x: (np.array2string(x), np.array_str(x)),
    "types": lambda x: (np.result_type(x, 1), np.iscomplexobj(x), np.isscalar(x), np.iterable(x)),
}

ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "x[0] = 1": (lambda x: operator.setitem(x, 0, 1), TypeError, "does not change; write in a compiled function"),
    "x.sort()": (lambda x: x.sort(), AttributeError, r"does not change, and has no sort: x = np.sort\(x\)"),
    "x.fill(1)": (lambda x: x.fill(1), AttributeError, r"x = np.full_like\(x, value\)"),
    "x.tobytes()": (lambda x: x.tobytes(), AttributeError, r"np.asarray\(x\).tobytes is that of a copy on the host"),
    "x.nothing": (lambda x: x.nothing, AttributeError, "'DeviceArray' object has no attribute 'nothing'$"),
    "out=x": (lambda x: np.add(x, 1, out=x), TypeError, r"does not change: write x = np.add\(...\), without out"),
    "np.add.at(x)": (lambda x: np.add.at(x, 0, 1), TypeError, r"np.add.at writes into an array on a device, .* np.array\(x\)"),
    "np.copyto(x)": (lambda x: np.copyto(x, 3), TypeError, "np.copyto writes into an array on a device"),
    "np.unique": (lambda x: np.unique(x), TypeError, r"np.unique is not computed on a device .*np.asarray\(x\)"),
    "np.nonzero": (lambda x: np.nonzero(x), TypeError, "shape of its result depends on values"),
    "x == None": (lambda x: x == None, TypeError, "np.equal of an array .* NoneType; write x is None"),  # noqa: E711
    "x + None": (lambda x: x + None, TypeError, "np.add of an array on a device and of type NoneType"),
    "x + text": (lambda x: x + "a", TypeError, "of type str"),
    "x += 1.5 of int": (lambda x: operator.iadd(x.astype(int), 1.5), TypeError, "Cannot cast ufunc 'add' output"),
    "x += larger": (lambda x: operator.iadd(x[0], H), ValueError, "broadcast"),
    "int8 + 300": (lambda x: x.astype("i1") + 300, OverflowError, "300 out of bounds for int8"),
    "int8 += 300": (lambda x: operator.iadd(x.astype("i1"), 300), OverflowError, "300 out of bounds for int8"),
    "mask - mask": (lambda x: (x > 3) - (x > 2), TypeError, "boolean subtract"),
    "shapes": (lambda x: x + np.ones(5), ValueError, "could not be broadcast"),
    "reshape": (lambda x: x.reshape(5), ValueError, r"cannot reshape array of size 12 into shape \(5,\)"),
    "x[7]": (lambda x: x[7], IndexError, "index 7 is out of bounds for axis 0 with size 3"),
    "x[0, 0, 0]": (lambda x: x[0, 0, 0], IndexError, "too many indices"),
    "x[wrong mask]": (lambda x: x[M.T], IndexError, "did not match indexed array along axis 0; size of axis is 3 but"),
    "x[:, mask of rows]": (lambda x: x[:, [True, False, True]], IndexError, "along axis 1; size of axis is 4 but .* is 3"),
    "bool": (lambda x: bool(x), ValueError, "more than one element is ambiguous"),
    "float": (lambda x: float(x), TypeError, "only 0-dimensional arrays can be converted to Python scalars"),
    "index": (lambda x: operator.index(x[1, 1]), TypeError, "only integer scalar arrays"),
    "round": (lambda x: round(x), TypeError, r"round takes a number, found an array of shape \(3, 4\); np.round"),
    "len": (lambda x: len(x[0, 0]), TypeError, "unsized"),
    "hash": (hash, TypeError, "unhashable"),
    "format": (lambda x: f"{x:.2f}", TypeError, "unsupported format string"),
    "memoryview": (memoryview, TypeError, "bytes-like"),
    "np.from_dlpack": (np.from_dlpack, (RuntimeError, BufferError), "[Uu]nsupported device"),  # type: ignore[dict-item]
}


def same(result: Any, wanted: Any) -> None:
    if isinstance(wanted, list | tuple):
        assert len(result) == len(wanted)
        for a, b in zip(result, wanted, strict=True):
            same(a, b)
    elif isinstance(result, pb.DeviceArray | np.ndarray):
        assert (result.dtype, result.shape) == (np.asarray(wanted).dtype, np.shape(wanted))
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-14)
    else:
        assert result == wanted and type(result) is type(wanted)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str) -> None:
    x = pb.device_put(H)
    same(ARRAYS[name](x), ARRAYS[name](H.copy()))
    np.testing.assert_array_equal(np.asarray(x), H, "an array on a device has changed")


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values(name: str) -> None:
    same(PLAIN[name](pb.device_put(H)), PLAIN[name](H.copy()))


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, error, message = ERRORS[name]
    x = pb.device_put(H)
    with pytest.raises(error, match=message):
        call(x)
    np.testing.assert_array_equal(np.asarray(x), H)


def test_what_is_computed_stays_on_the_device() -> None:
    x = pb.device_put(H, "cuda:1")
    built = [x + 1, x @ H.T, np.sin(x), x[0], x[x > 3], np.zeros(3, like=x), x.copy(), operator.iadd(x, 1), x.sum(), H[0] * x]
    assert {getattr(a, "device", "cpu") for a in built} == {"cuda:1"}
    assert x.copy().address != x.address
    assert isinstance(operator.iadd(np.ones((3, 4)), x), np.ndarray)


def test_in_place_operators_bind_a_new_array() -> None:
    x = y = pb.device_put(H)
    x += 1
    np.testing.assert_array_equal(np.asarray(x), H + 1)
    np.testing.assert_array_equal(np.asarray(y), H)


def test_one_program_for_all_numbers() -> None:
    x = pb.device_put(np.ones(7))
    np.asarray(x * 0.5 + 2)
    before = traces()
    for k in range(5):
        np.testing.assert_array_equal(np.asarray(x * (0.25 * k) + k), np.ones(7) * 0.25 * k + k)
    assert traces() == before


def test_files(tmp_path: Path) -> None:
    x = pb.device_put(H)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", first=x)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), H)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["first"], H)


@pytest.mark.parametrize("write", [lambda x: x.fill(2), lambda x: np.copyto(x, 2)], ids=["fill", "copyto"])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_compiled_functions_do_not_change_it_either(write: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    x = pb.device_put(np.zeros(shape))
    with pytest.raises(pb.TraceError, match="an array on a device, which does not change"):
        pb.jit(write)(x)
    assert not np.asarray(x).any()
