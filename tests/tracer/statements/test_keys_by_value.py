"""Members of an enum and keys of a dict that values decide: attributes and items of the one that it is."""

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

X = np.array([0.51, -0.23, 0.77, 0.125, -1.07, 0.375, 1.54, -2.09, 2.03])
RATES = {"idle": 0.5, "busy": 2.0, "down": -1.0}
NEXT = {"red": "green", "green": "yellow", "yellow": "red"}


class Mode(enum.Enum):
    SLOW = 1
    FAST = 2
    STOPPED = 5


class Gear(enum.Enum):
    LOW = 0.5
    HIGH = 2.0

    @property
    def doubled(self) -> float:
        return self.value * 2


def values_and_names(x: Any) -> Any:
    mode, total = Mode.SLOW, 0.0
    for v in x:
        if mode is Mode.SLOW:
            total += v * mode.value
            if total > 1:
                mode = Mode.FAST
        elif mode is Mode.FAST:
            total -= abs(v)
            if total < 0:
                mode = Mode.STOPPED
        else:
            mode = Mode.SLOW
    return total, mode.value, mode.name, mode


def properties(x: Any) -> Any:
    gear, total, history = Gear.LOW, 0.0, []
    for v in x:
        gear = Gear.HIGH if v > 0 else Gear.LOW
        total += v * gear.value + gear.doubled
        history.append(gear.value)
    return total, np.array(history)


def rates(x: Any) -> Any:
    state, total = "idle", 0.0
    for v in x:
        total += RATES[state] * v
        state = "busy" if total > 1 else "idle" if total > 0 else "down"
    return total, state


def rows(x: Any) -> Any:
    table, total = {"up": x[:3].copy(), "down": -x[:3]}, np.zeros(3)
    for v in x:
        key = "up" if v > 0 else "down"
        total += table[key] * v
    return total, key


def transitions(x: Any) -> Any:
    light, count = "red", 0
    for v in x:
        if v > 0:
            light = NEXT[light]
        if light == "green":
            count += 1
    return x[0] * count, light


def missing_key(x: Any) -> Any:
    total = 0.0
    for v in x:
        total += RATES["broken" if v > 1.8 else "busy"] * v
    return total, None


@pytest.mark.parametrize("function", [values_and_names, properties, rates, rows, transitions, missing_key])
def test_values_errors_and_gradients(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    slope = pb.grad(lambda x: np.sum(compiled(x)[0]))
    direction = np.linspace(-0.6, 0.9, len(X))
    for x in (X, -X, 0.3 * X, X[:1], X[::-1]):
        try:
            expected = function(x)
        except KeyError as error:
            with pytest.raises(KeyError) as caught:
                compiled(x)
            assert caught.value.args == error.args
            continue
        for e, r in zip(expected, compiled(x), strict=True):
            assert type(e) is type(r)
            np.testing.assert_array_equal(r, e)
        step = 1e-6 * direction[: len(x)]
        difference = (np.sum(function(x + step)[0]) - np.sum(function(x - step)[0])) / 2
        np.testing.assert_allclose(np.sum(slope(x) * step), difference, rtol=1e-6, atol=1e-12)
