"""What arrays a call takes: layouts, dtypes and byte orders of NumPy's, objects that stand for arrays; and what it refuses."""

import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback as pb
from pullback.tracer.arrays.tree import as_array

X = np.arange(1.0, 13.0).reshape(3, 4) / 4


def misaligned(x: Any) -> Any:
    built = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    built[...] = x
    return built


def readonly(x: Any) -> Any:
    built = x.copy()
    built.flags.writeable = False
    return built


LAYOUTS: dict[str, Callable[[], Any]] = {
    "row-major": lambda: X.copy(),
    "column-major": lambda: np.asfortranarray(X),
    "transposed": lambda: X.copy().T,
    "reversed": lambda: X.copy()[::-1, ::-1],
    "every second": lambda: X.copy()[:, ::2],
    "a column": lambda: X.copy()[:, 1],
    "axes exchanged": lambda: np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    "rank 0": lambda: np.array(2.5),
    "size 0": lambda: X[:0].copy(),
    "size 0 in the middle": lambda: np.zeros((2, 0, 3)),
    "misaligned": lambda: misaligned(X),
    "big-endian": lambda: X.astype(">f8"),
    "big-endian column": lambda: X.astype(">f8")[:, 1],
    "float32": lambda: X.astype(np.float32),
    "float16": lambda: X.astype(np.float16),
    "misaligned float32": lambda: misaligned(X.astype(np.float32)),
}


def polynomial(x: Any) -> Any:
    return x * x + 3 * x - 1


def changed(x: Any) -> Any:
    x *= 2
    x[...] = x + 1
    return x.sum()


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts(make: Callable[[], Any]) -> None:
    x, y = make(), make()
    for call in (polynomial, changed):
        expected, result = call(y), pb.jit(call)(x)
        assert (result.dtype, np.shape(result)) == (expected.dtype.newbyteorder("="), np.shape(expected))
        tolerance = 2e-3 if x.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(result, expected, rtol=tolerance)
        np.testing.assert_array_equal(x, y)
    gradient = pb.grad(lambda v: np.sum(v * v * v))(x)
    np.testing.assert_allclose(gradient, 3 * y * y, rtol=tolerance)
    assert gradient.dtype == y.dtype.newbyteorder("=")


@pytest.mark.parametrize("call", [np.copy, np.negative, lambda x: (x + 0, x.copy(), x.copy())], ids=["copy", "new", "several"])
def test_results_lie_in_c_order(call: Callable[..., Any]) -> None:
    for make in (LAYOUTS["column-major"], LAYOUTS["transposed"], LAYOUTS["axes exchanged"]):
        for result in pb.tree.leaves(pb.jit(call)(make())):
            assert result.flags.c_contiguous


def test_roots_of_special_values() -> None:
    x = np.array([-np.inf, -0.0, 0.0, 2.0, -2.0, np.nan, np.inf])
    for arguments in (x, x.astype("f4"), x + 0j, x.astype("F"), np.array([complex(np.inf, np.nan), complex(-np.inf, np.nan)])):
        with np.errstate(all="ignore"):
            expected = arguments**0.5
        result = pb.jit(lambda x: x**0.5)(arguments)
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_read_only_arrays_are_read() -> None:
    x = readonly(X)
    np.testing.assert_array_equal(pb.jit(polynomial)(x), polynomial(X))
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        pb.jit(changed)(x)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("name", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">u4"])
def test_integers_wrap_around(name: str) -> None:
    limits = np.iinfo(name)
    x = np.array([limits.min, limits.min + 1, 0, 1, 7, limits.max - 1, limits.max], name)

    def call(x: Any) -> Any:
        return x + x, x * x - 3, -x, x << 1, x.sum(), x // 2, np.abs(x), x**3

    with np.errstate(all="ignore"):
        expected = call(x)
    for e, f in zip(expected, pb.jit(call)(x), strict=True):
        assert f.dtype == e.dtype.newbyteorder("=")
        np.testing.assert_array_equal(f, e)


def test_bools() -> None:
    b = X > 1

    def call(b: Any) -> Any:
        return b & ~b, b + b, b.sum(), b.mean(), b * 2, b | True

    for e, f in zip(call(b), pb.jit(call)(b), strict=True):
        assert f.dtype == e.dtype
        np.testing.assert_array_equal(f, e)


def test_bfloat16() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    result, expected = pb.jit(polynomial)(x), polynomial(x)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result.astype(float), expected.astype(float), rtol=2e-2)
    assert pb.grad(lambda v: np.sum(v * v))(x).dtype == x.dtype


# objects that stand for arrays


def of_library(kind: Any) -> Any:
    """The class as if it were a library's."""
    kind.__module__ = "pytest"
    return kind


@of_library
class Converted:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


@of_library
class Interface:
    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


@of_library
class Capsule:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@of_library
class Copying:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return X.copy()


@pytest.mark.parametrize("kind", [Converted, Interface, Capsule])
def test_objects_that_stand_for_arrays(kind: Any) -> None:
    x = X.copy()
    np.testing.assert_array_equal(pb.jit(polynomial)(kind(x)), polynomial(X))
    np.testing.assert_array_equal(pb.grad(lambda p: np.sum(p["w"] ** 2))({"w": kind(x)})["w"], 2 * X)
    outside = kind(x)
    compiled = pb.jit(lambda y: y + np.sum(outside))
    assert compiled(1.0) == 1 + X.sum()
    x[0, 0] += 5
    assert compiled(1.0) == 6 + X.sum()


@pytest.mark.parametrize("kind", [Converted, Interface, Capsule, memoryview])
def test_they_are_not_copied(kind: Any) -> None:
    x = X.copy()
    assert np.shares_memory(as_array(kind(x)), x)
    pb.jit(changed)(kind(x))
    np.testing.assert_array_equal(x, 2 * X + 1)


def test_buffers() -> None:
    arguments = array.array("d", [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(pb.jit(polynomial)(memoryview(arguments)), polynomial(np.asarray(arguments)))
    np.testing.assert_array_equal(pb.grad(lambda x: np.sum(x**2))(memoryview(X)[1:]), 2 * X[1:])
    assert pb.jit(np.sum)(memoryview(b"\x01\x02\xff")) == 258
    with pytest.raises(ValueError, match="read-only"):
        pb.jit(changed)(memoryview(readonly(X)))


def test_results_are_given_without_copies() -> None:
    result = pb.jit(polynomial)(X)
    for arguments in (np.from_dlpack(result), np.asarray(memoryview(result)), np.asarray(Interface(result))):
        assert np.shares_memory(arguments, result)
        arguments[0, 0] = 7.0
        assert result[0, 0] == 7.0
        result[0, 0] = 0.0


def test_a_write_reaches_the_object_or_raises() -> None:
    x = X.copy()
    pb.jit(changed)(Converted(x))
    np.testing.assert_array_equal(x, 2 * X + 1)
    with pytest.raises(ValueError, match="read-only"):
        pb.jit(changed)(Copying())


def test_files_as_memory(tmp_path: Path) -> None:
    x: Any = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=X.shape)
    x[...] = X
    np.testing.assert_array_equal(pb.jit(polynomial)(x), polynomial(X))
    pb.jit(changed)(x)
    np.testing.assert_array_equal(x, 2 * X + 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (X.astype(np.longdouble), "float64"),
        (X.astype(np.clongdouble), "complex128"),
        (np.ma.array(X, mask=X > 1), "MaskedArray"),
        (np.array([1, None], object), "object"),
        (Converted(np.array([1, None], object)), "object"),
        (np.array(["a"]), "strings"),
        (np.array([b"a"]), "strings"),
        (np.array(["2020"], "M8[D]"), "datetime64"),
        (np.array([1], "m8[s]"), "timedelta64"),
        (np.zeros(2, [("a", float)]), "fields"),
        (np.zeros(2, "V3"), "dtype of numbers"),
        (X.astype(ml_dtypes.float8_e4m3fn), "dtype of numbers"),
        (np.array(["a"], np.dtypes.StringDType()), "strings"),
        (array.array("d", [1.0]), "np.asarray"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_refused(value: Any, words: str) -> None:
    with pytest.raises(pb.TraceError, match=words):
        pb.jit(polynomial)(value)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_matrices_are_refused() -> None:
    with pytest.raises(pb.TraceError, match="is a matrix"):
        pb.jit(polynomial)(np.matrix(X))


def test_isin_says_an_array_of_a_number_too() -> None:
    def call(x: Any) -> Any:
        result = np.isin(x, [1, 2])
        before = result.copy()
        result.fill(True)
        return before, result

    for x in (np.array(-1), np.array([1, 3])):
        for a, b in zip(pb.jit(call)(x), call(x), strict=True):
            np.testing.assert_array_equal(a, b)
