"""Lists of the elements of traced arrays, which are Python numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb


def nested(x: Any) -> Any:
    return x.reshape(2, -1).tolist(), (x > 0.5).tolist(), x[0].tolist(), x.astype(int).tolist(), x[:0].tolist()


def test_values() -> None:
    x = np.array([1.5, 2.5, 0.25, 3.0])
    assert pb.jit(nested)(x) == nested(x)


def weighted(x: Any) -> Any:
    total = 0.0
    for k, (a, b) in enumerate(zip(x.tolist(), (2 * x).tolist())):
        total += k * a * b
    return total


def test_gradient() -> None:
    x = np.array([1.5, 2.5, 0.25, 3.0])
    np.testing.assert_allclose(pb.grad(weighted)(x), 4 * np.arange(4) * x)


def test_elements_divide_as_python_numbers() -> None:
    compiled = pb.jit(lambda x: x.tolist()[0] / x.tolist()[1])
    assert compiled(np.array([1.0, 2.0])) == 0.5
    with pytest.raises(ZeroDivisionError, match="float division by zero"):
        compiled(np.array([1.0, 0.0]))


def test_refused() -> None:
    with pytest.raises(pb.TraceError, match="a list of more than 2000 elements"):
        pb.jit(lambda x: x.tolist())(np.zeros(2001))


def test_a_list_of_a_length_by_value() -> None:
    compiled = pb.jit(lambda x: x[x > 0].tolist(), guards=False)
    for x in (np.array([1.0, -1.0, 2.0]), -np.ones(3), np.ones(3)):
        assert compiled(x) == x[x > 0].tolist()


def selected_constants(x: Any) -> Any:
    places = np.nonzero(x)[0]
    return np.sum(np.log(np.array([4.0, 5.0, 6.0, 7.0])[places]) * x[places])


def test_a_constant_array_is_indexed_by_positions_that_values_decide() -> None:
    for x in (np.array([0.0, 1.0, 2.0, 0.0]), np.zeros(4), np.ones(4)):
        assert pb.jit(selected_constants)(x) == pytest.approx(selected_constants(x), rel=1e-14)


def followed(x: Any) -> Any:
    places = np.nonzero(np.diff(x) > 0.3)[0]
    if len(places) % 2:
        places = np.append(places, [len(x)])
    y = x * 1.0
    for start, stop in places.reshape((len(places) // 2, 2)):
        y[start:stop] *= -1
    return y


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
def test_iterations_over_rows_whose_number_is_guarded() -> None:
    compiled = pb.jit(followed)
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(size=16)
        np.testing.assert_array_equal(compiled(x), followed(x))
