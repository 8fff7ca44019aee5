"""The work of every stage of the compiler grows in proportion to a program: twice the turns of ten kinds of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.fuse import fuse_with_decisions
from pullback.codegen.lower.lower import lower
from pullback.ir.core.structure import Function
from pullback.ir.passes import pipeline
from pullback.ir.passes.size_classes import templated
from pullback.ir.passes.transforms.expand import grad
from pullback.programs.pipeline import layouts_of, scheduled, split_outcomes
from pullback.tracer import trace
from tests.support.work_counter import calls_in

MOST = 2.3
"""Largest ratio of the work for twice the turns."""
TURNS = 24
FEW = 20_000
"""Calls of a pass that are too few for a ratio."""

Program = Callable[[Any], Any]


def components(turns: int) -> Program:
    def run(y: Any) -> Any:
        for _ in range(turns):
            y = y + 0.01 * np.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 2.5 * y[2]])
        return np.sum(y)

    return run


def joins(turns: int) -> Program:
    def run(y: Any) -> Any:
        for k in range(turns):
            y = np.concatenate([y[1:], np.sin(y[:1]) * k])
            y = np.stack([y, y * 2]).sum(0)
        return np.sum(y)

    return run


def pads(turns: int) -> Program:
    def run(x: Any) -> Any:
        for _ in range(turns):
            x = x * np.pad(x[1:-1], 1)
        return np.sum(x)

    return run


def rolls(turns: int) -> Program:
    def run(x: Any) -> Any:
        for _ in range(turns):
            x = x + 0.1 * (np.roll(x, 1) + np.roll(x, -1) - 2 * x)
        return np.sum(x)

    return run


def writes(turns: int) -> Program:
    def run(x: Any) -> Any:
        y = np.zeros_like(x)
        for k in range(turns):
            y[k] = np.sin(x[k]) + y[k - 1]
        return np.sum(y * y)

    return run


def slices(turns: int) -> Program:
    def run(x: Any) -> Any:
        total = 0.0
        for k in range(turns):
            part = x[k:][1:-1]
            total = total + np.sum(part[:5] * part[::2][-5:])
        return total

    return run


def loops(turns: int) -> Program:
    def run(y: Any) -> Any:
        for _ in range(turns):
            y = pb.fori_loop(0, 3, lambda i, y: np.stack([y[1], y[2] * y[0], y[0] - y[1]]), y)
        return np.sum(y)

    return run


def chains(turns: int) -> Program:
    def run(x: Any) -> Any:
        for _ in range(turns):
            x = np.tanh(x * 1.5) - np.exp(x) * 0.1
        return np.sum(x)

    return run


def reductions(turns: int) -> Program:
    def run(x: Any) -> Any:
        for _ in range(turns):
            x = x - np.mean(x)
            x = x / np.sqrt(np.sum(x * x))
        return np.max(x)

    return run


def products(turns: int) -> Program:
    def run(x: Any) -> Any:
        for _ in range(turns):
            x = np.tanh(x @ x)
        return np.sum(x)

    return run


KINDS: dict[str, tuple[Callable[[int], Program], np.ndarray]] = {
    "components": (components, np.ones(3)),
    "joins": (joins, np.ones(4)),
    "pads": (pads, np.ones(50)),
    "rolls": (rolls, np.ones(50)),
    "writes": (writes, np.ones(50)),
    "slices": (slices, np.ones(70)),
    "loops": (loops, np.ones(3)),
    "chains": (chains, np.ones(50)),
    "reductions": (reductions, np.ones(50)),
    "products": (products, np.ones((40, 40))),
}


def work(program: Program, x: np.ndarray) -> dict[str, int]:
    """Return the number of calls that each stage, and each pass of a stage, makes for the value and gradient of a program."""
    counts: dict[str, int] = {}

    def count(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        calls, result = calls_in(function, *arguments)
        counts[name] = counts.get(name, 0) + calls
        return result

    traced = count("trace", trace, pb.value_and_grad(program), (x,))
    abstract = count("abstract", templated, split_outcomes(traced)[0])
    function: Function = abstract.function
    for step in (*pipeline.BEFORE_GRAD, grad, *pipeline.OPTIMIZE):
        function = count(step.__name__, step, function)
    groups = count("fuse", fuse_with_decisions, function, "cpu")
    module = count("lower", lower, groups.function, layouts_of(traced, (x,), len(abstract.constants)), "cpu")
    count("schedule", scheduled, module, "cpu")
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_twice_the_turns_are_twice_the_work(kind: str) -> None:
    program, x = KINDS[kind]
    work(program(2), x)
    once, twice = work(program(TURNS), x), work(program(2 * TURNS), x)
    ratios = {name: twice[name] / once[name] for name in once if twice[name] > FEW}
    ratios["all"] = sum(twice.values()) / sum(once.values())
    assert max(ratios.values()) <= MOST, ratios
