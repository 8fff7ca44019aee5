"""The warning about Python loops that unroll into thousands of operations."""

import inspect
import warnings

import numpy as np
import pytest

import pullback as pb

STEPS = 1300


def counted(x, n):
    for _ in range(n):
        x = np.sin(x) * 0.5 + np.cos(x)
    return x


def elements(x, xs):
    for row in xs:
        x = np.sin(x) * row + np.cos(x)
    return x


def until(x):
    k = 0
    while k < STEPS:
        x = np.sin(x) * 0.5 + np.cos(x)
        k += 1
    return x


def step(x):
    y = np.sin(x)
    return y * 0.5 + np.cos(x)


def through_a_helper(x):
    for _ in range(10):
        for _ in range(STEPS // 10):
            x = step(x)
    return x


def within_a_gradient(x):
    return pb.grad(lambda x: np.sum(counted(x, STEPS)))(x)


def fewer_within_a_gradient(x):
    return pb.grad(pb.jit(lambda x: np.sum(counted(x, 1100)), loops="unroll"))(x)


def to_a_tolerance(x):
    while x > 1e-9:
        x = x * 0.97 + 0.0 * np.sin(x) * np.cos(x)
    return x


CASES = [
    (counted, (0.5, STEPS), {"loops": "unroll"}, counted, 1, "pb.fori_loop(0, n, body, state)"),
    (elements, (0.5, np.ones(STEPS)), {"loops": "unroll"}, elements, 1, "pb.scan(body, state, xs)"),
    (until, (0.5,), {"loops": "unroll"}, until, 2, "pb.while_loop(condition, body, state)"),
    (through_a_helper, (0.5,), {"loops": "unroll"}, step, 2, "pb.fori_loop(0, n, body, state) or pb.scan(body, state, xs)"),
    (within_a_gradient, (0.5,), {"loops": "unroll"}, counted, 1, "pb.fori_loop(0, n, body, state)"),
    (fewer_within_a_gradient, (0.5,), {"loops": "unroll"}, counted, 1, "pb.fori_loop(0, n, body, state)"),
    (to_a_tolerance, (1.0,), {"guards": True}, to_a_tolerance, 1, "pb.while_loop(condition, body, state)"),
]


@pytest.mark.parametrize("function, args, options, position, line, instead", CASES, ids=[c[0].__name__ for c in CASES])
def test_a_loop_is_named_once(function, args, options, position, line, instead):
    compiled = pb.jit(function, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert len(compiled.examine(args, {}).trace.function.instructions) > 0
    (warning,) = caught
    assert warning.category is pb.UnrollWarning and warning.filename == __file__ and instead in str(warning.message)
    assert f"{function.__name__} has " in str(warning.message)
    assert warning.lineno == inspect.getsourcelines(position)[1] + line


def test_what_does_not_loop_is_not_named():
    lines = "\n".join(f"    x = x * {k}.5 + np.sin(x)" for k in range(2000))
    space = {"np": np}
    exec(f"def straight(x):\n{lines}\n    return x", space)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function, *args in [(space["straight"], 1.0), (counted, 0.5, STEPS // 2), (until, 0.5)]:
            assert pb.jit(function).examine(args, {}).trace.function.instructions
