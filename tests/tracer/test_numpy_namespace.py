"""``pullback.numpy``: the names of NumPy, traced also where the calling code is not followed."""

from typing import Any

import numpy
import pytest

import pullback as pb
import pullback.numpy as np
from pullback.numpy import linalg, zeros
from pullback.numpy.linalg import norm
from tests.support.agreement import agrees


def library(source: str) -> Any:
    """A function whose code counts as a library's: the tracer does not follow it."""
    space: dict[str, Any] = {"np": np}
    exec(compile(source, "/usr/lib/python3/dist-packages/lib.py", "exec"), space)
    return space["f"]


def made(x: Any) -> Any:
    a = zeros(3)
    a[1] = x[0]
    b = np.array([x[0], 2 * x[1], 1.0])
    return a, np.add(b, [x[0], 1.0, 2.0]), linalg.norm(b), norm(a), np.maximum.reduce(b), np.full(2, x[0]), np.fft, np.pi


def test_in_followed_code() -> None:
    agrees(lambda x: made(x)[:-2], numpy.array([1.5, -0.5]))


def test_in_code_that_is_not_followed() -> None:
    f = library(
        "def f(x):\n"
        "    a = np.zeros(3, np.float32)\n"
        "    a[0] = x[1]\n"
        "    return a, np.array([x[0], 1.0]), np.arange(3) * x[0], np.linalg.norm(np.array([x[0], x[1]])), np.row_stack([x, x])\n"
    )
    x = numpy.array([1.5, -0.5])
    agrees(f, x)
    numpy.testing.assert_array_equal(pb.grad(lambda x: numpy.sum(f(x)[0]))(x), [0.0, 1.0])


def test_a_traced_array_answers_its_namespace() -> None:
    def f(x: Any) -> Any:
        xp = x.__array_namespace__()
        return xp.zeros(2) + x, xp.asarray([x[0], x[1]]), xp.linalg.norm(x), xp.float32(2.0)

    def plain(x: Any) -> Any:
        return numpy.zeros(2) + x, numpy.asarray([x[0], x[1]]), numpy.linalg.norm(x), numpy.float32(2.0)

    x = numpy.array([1.5, -0.5])
    for e, g in zip(plain(x), pb.jit(f)(x), strict=True):
        assert e.dtype == g.dtype
        numpy.testing.assert_allclose(g, e, rtol=1e-15)
    with pytest.raises(ValueError, match="1999"):
        pb.jit(lambda x: x.__array_namespace__(api_version="1999.12").zeros(2))(x)


def test_outside_a_trace_names_are_numpys() -> None:
    assert np.zeros(3).dtype == numpy.float64 and np.float32 is numpy.float32 and np.pi == numpy.pi
    assert np.add.reduce([1, 2]) == 3 and np.linalg.norm([3.0, 4.0]) == 5.0 and np.r_[1, 2].tolist() == [1, 2]
    assert np.__array_api_version__ == numpy.__array_api_version__
    assert set(dir(np)) > {"sin", "zeros", "linalg"} and np.sin.__doc__ == numpy.sin.__doc__


@pytest.mark.parametrize("name", ["no_such_name", "_core", "random"])
def test_names_that_are_not_there(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(np, name)
