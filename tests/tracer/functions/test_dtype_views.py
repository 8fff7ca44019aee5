"""``x.view(dtype)``: the same bytes as NumPy's, written through, with the derivatives of pairs of floats; bits have none."""

from typing import Any

import numpy as np
import pytest

import pullback as pb

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
SHAPES: tuple[tuple[int, ...], ...] = ((8,), (3, 16), (0,), (3, 0), (16, 1), (), (2, 3))
X = np.random.default_rng(5).normal(size=6)


def array(name: str, shape: tuple[int, ...]) -> Any:
    """Numbers of a dtype, the extremes among them."""
    rng, dtype = np.random.default_rng(3), np.dtype(name)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) > 0.5)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True))
    special = np.array([np.nan, -0.0, np.inf, 5e-324])
    result = np.asarray(np.resize(np.concatenate([special, rng.normal(size=44)]), shape)).astype(dtype)
    if dtype.kind == "c":
        result.imag[...] = np.flip(result.real)
    return result


def outcome(function: Any, x: Any) -> Any:
    try:
        result = function(x)
    except (ValueError, pb.TraceError) as error:
        return error
    return result.dtype, result.shape, result.tobytes()


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_a_view_has_the_bytes_of_numpy(source: str, target: str) -> None:
    compiled = pb.jit(lambda x: x.view(target))
    for shape in SHAPES if source == "f8" or target == "f8" else SHAPES[:2]:
        x = array(source, shape)
        result, expected = outcome(compiled, x), outcome(lambda x: x.view(target), x)
        if isinstance(result, pb.TraceError):
            assert (target == "?") or ("made of the bits" in str(result) and {source[0], target[0]} <= {"f", "c"})
        elif isinstance(expected, Exception):
            assert (type(result), str(result)) == (type(expected), str(expected))
        else:
            assert result == expected


def written(x: Any) -> Any:
    y = x.copy()
    pairs = y.view(complex)
    pairs[0] = 1 + 2j
    pairs *= 2
    return y


def bytes_of(k: Any) -> Any:
    v = k.view("u1")
    v[0] = 5
    v[3:6] += 1
    return k * 1


def uniform(bits: Any) -> Any:
    return ((bits >> 12) | 0x3FF0000000000000).view(np.float64) - 1


@pytest.mark.parametrize(
    ("function", "x"),
    [(written, X), (bytes_of, np.arange(4)), (uniform, np.arange(2**61, 2**63, 2**59, dtype=np.uint64)),
     (lambda x: x.view(np.ndarray) + 1, X), (lambda x: x.view(type=np.ndarray), X), (lambda x: np.max(x).view("i8"), X),
     (lambda x: (x + 1).view("u8") >> 63, X), (lambda x: x.view("i8").view("i4")[::2], X)],
)  # fmt: skip
def test_views_are_written_through_and_read(function: Any, x: Any) -> None:
    mine, theirs = x.copy(), x.copy()
    result, expected = pb.jit(function)(mine), function(theirs)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(mine, theirs)


def test_pairs_have_derivatives_and_bits_have_none() -> None:
    z = X + 1j * X[::-1]
    assert pb.check_grad(lambda x: np.sum(np.sin(x.view(complex)) ** 2).real, order=2)(X).is_right
    assert pb.check_grad(lambda z: np.sum(np.sin(z.view(float)) ** 2), order=2)(z).is_right
    np.testing.assert_allclose(pb.grad(written_loss)(X), np.array([0, 0, 2, 2, 2, 2]) * np.cos(2 * X))
    slope = pb.grad(lambda x: np.sum(x * (1.0 - 2.0 * (x.view("u8") >> 63))))(X)
    np.testing.assert_array_equal(slope, np.sign(X))


def written_loss(x: Any) -> Any:
    return np.sum(np.sin(written(x)))


MASK = 0x7FFFFFFFFFFFFFFF


def carried(x: Any) -> Any:
    bits = x.view("u8")
    return pb.fori_loop(0, 3, lambda i, c: c & MASK, bits).view("f8")


def in_place(x: Any) -> Any:
    x.view("u8")[0] = 5
    return x * 1


@pytest.mark.parametrize("function", [lambda x: (x.view("u8") & MASK).view("f8"), carried, in_place, lambda x: x.view("f4")])
def test_floats_of_bits_are_refused(function: Any) -> None:
    for transform in (pb.jit, lambda f: pb.grad(lambda x: np.sum(f(x)))):
        before = X.copy()
        with pytest.raises(pb.TraceError, match="no derivative"):
            transform(function)(before)
        np.testing.assert_array_equal(before, X)


@pytest.mark.parametrize("function", [lambda x: x.T.view("f4"), lambda x: (x + 1).T.view("i4"), lambda x: x[0, ::2].view("i4")])
def test_elements_of_another_size_need_a_dense_last_axis(function: Any) -> None:
    for f in (pb.jit(function), function):
        with pytest.raises(ValueError, match="last axis must be contiguous"):
            f(np.ones((3, 4)))


def test_what_is_no_view_of_numbers() -> None:
    for target, words in ((np.matrix, "use the plain array"), (">f8", "byte"), ("U1", "a view"), ([("a", "f8")], "a view")):
        with pytest.raises(pb.TraceError, match=words):
            pb.jit(lambda x, t=target: x.view(t))(X)
    with pytest.raises(AttributeError, match="'float' object has no attribute 'view'"):
        pb.jit(lambda x: x.view("f8"))(2.0)

    def changed(x: Any) -> Any:
        x.dtype = np.int64
        return x

    with pytest.raises(pb.TraceError, match=r"write x = x.view\(dtype\)"):
        pb.jit(changed)(X)
