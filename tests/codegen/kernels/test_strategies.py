"""The registry of schedules: every group has one, the cheapest is taken, and tests can force any that fits."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.kernels.groups import registry
from pullback.codegen.kernels.groups.registry import SCHEDULES, cheapest, fitting
from pullback.codegen.kernels.iteration_space import Space, collapse
from pullback.ir.core.structure import Instruction
from pullback.ir.ops.control.regions import group
from pullback.ir.text import parse_function
from tests.support.forced_strategies import always, at_random

GROUPS = {
    "map": """func f(%x: f64[n]) -> (f64[n]) {
  %y: f64[n] = group %x {rows=0, space=[n]} (%a: f64[n]) {
    %b: f64[n] = mul %a, %a
    yield %b
  }
  return %y
}""",
    "softmax": """func f(%x: f64[n,m]) -> (f64[n,m]) {
  %y: f64[n,m] = group %x {rows=1, space=[n, m]} (%a: f64[n,m]) {
    %e: f64[n,m] = exp %a
    %s: f64[n] = sum %e {axes=[1]}
    %t: f64[n,m] = broadcast %s {axes=[1]}
    %d: f64[n,m] = div %e, %t
    yield %d
  }
  return %y
}""",
    "scan": """func f(%x: f64[n]) -> (f64[n]) {
  %y: f64[n] = group %x {rows=0, space=[n]} (%a: f64[n]) {
    %b: f64[n] = cumsum %a {axis=0, reverse=false}
    yield %b
  }
  return %y
}""",
    "columns": """func f(%x: f64[n,m]) -> (f64[m]) {
  %y: f64[m] = group %x {rows=0, space=[n, m]} (%a: f64[n,m]) {
    %s: f64[m] = sum %a {axes=[0]}
    yield %s
  }
  return %y
}""",
}


def space_of(text: str) -> Space:
    (result,) = (i for i in parse_function(text).instructions if i.op is group)
    assert isinstance(result, Instruction)
    return collapse(result, ["c"] * len(result.operands))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS)
def test_every_group_has_a_schedule_and_every_schedule_a_cost(text: str, target: str) -> None:
    space = space_of(text)
    choices = fitting(space, ["c"], target)
    assert choices
    assert cheapest(space, choices).cost(space).time == min(s.cost(space).time for s in choices)
    for schedule in SCHEDULES:
        reason = schedule.fits(space, ["c"])
        assert (schedule in choices) == (reason is None and target in schedule.targets)
        assert reason is None or len(reason) > 10
    for schedule in choices:
        cost = schedule.cost(space)
        assert cost.bytes > 0 and cost.cached >= cost.bytes and cost.flops > 0


def test_names_are_unique() -> None:
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


def test_a_rule_of_the_tests_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def pick(space: Space, choices: object) -> object:
        seen.append(space)
        return always("rows")(space, choices)  # type: ignore[arg-type]

    monkeypatch.setattr(registry, "pick", pick)
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(pb.jit(lambda x: x / np.sum(x, 1, keepdims=True) + 2)(x), x / x.sum(1, keepdims=True) + 2)
    assert seen


def test_a_seed_gives_a_group_one_schedule() -> None:
    for text in GROUPS.values():
        space = space_of(text)
        choices = fitting(space, ["c"], "cpu")
        assert {at_random(3)(space, choices) for _ in range(8)} == {at_random(3)(space, list(choices))}
        assert {at_random(seed)(space, choices).name for seed in range(64)} == {s.name for s in choices}
