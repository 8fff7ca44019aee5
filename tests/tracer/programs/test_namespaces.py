"""Tests of namespaces as arguments and results: trees of their attributes, whose changes reach the caller's."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import traces


def test_one_program_serves_all_namespaces_of_equal_attributes() -> None:
    compiled = pb.jit(lambda p, x: p.a * x + np.sum(p.w) + len(p.name))
    before = traces()
    for k in range(20):
        p = SimpleNamespace(a=0.5 + k, w=np.full(3, k + 0.5), name="n")
        assert compiled(p, 2.0) == (0.5 + k) * 2.0 + 3 * (k + 0.5) + 1
    assert traces() == before + 1
    assert compiled.explain(p, 2.0).path == "native"
    assert compiled(SimpleNamespace(a=1.0, w=np.ones(3), name="other"), 2.0) == 10.0
    assert compiled(SimpleNamespace(a=1.0, w=np.ones(3), name="n", more=0.0), 2.0) == 6.0
    assert traces() == before + 3


def test_other_attributes_are_another_program() -> None:
    compiled = pb.jit(lambda p: p.b * 2.0 if hasattr(p, "b") else p.a)
    for _ in range(4):
        assert compiled(SimpleNamespace(a=1.5)) == 1.5
        assert compiled(SimpleNamespace(a=1.5, b=2.0)) == 4.0
        assert compiled(SimpleNamespace(b=3.0, a=1.5)) == 6.0


def test_gradients_are_by_attributes() -> None:
    p = SimpleNamespace(a=2.0, w=np.array([1.0, 3.0]), inner=SimpleNamespace(k=0.5))
    gradient = pb.grad(lambda p: p.a**2 * np.sum(p.w) + np.exp(p.inner.k))(p)
    assert type(gradient) is SimpleNamespace and list(vars(gradient)) == ["a", "w", "inner"]
    assert gradient.a == 16.0 and gradient.w.tolist() == [4.0, 4.0] and np.isclose(gradient.inner.k, np.exp(0.5))
    options = argparse.Namespace(rate=0.1, layers=[1, 2], verbose=True)
    value, gradient = pb.value_and_grad(lambda x, o: x * o.rate * len(o.layers) if o.verbose else x)(3.0, options)
    assert np.isclose(value, 0.6) and gradient == 0.2


def test_results() -> None:
    def made(x: float) -> Any:
        return SimpleNamespace(value=x * 2, array=np.array([x, 1.0]), inner=argparse.Namespace(x=x))

    compiled = pb.jit(made)
    for x in (1.5, 2.5, 3.5, 4.5):
        result = compiled(x)
        assert type(result) is SimpleNamespace and list(vars(result)) == ["value", "array", "inner"]
        assert type(result.value) is float and result.value == 2 * x and result.array.tolist() == [x, 1.0]
        assert result.inner == argparse.Namespace(x=x)
    assert compiled.explain(1.0).path == "native"


def stored(p: Any, n: int) -> Any:
    for _ in range(n):
        p.x = p.x + 0.5 * p.v
        p.v = p.v - 0.1
        if p.x > 3.0:
            p.hits += 1
    p.new = [p.x]
    return p.v


@pytest.mark.parametrize("n", [0, 3, 600])
def test_changes_reach_the_callers(n: int) -> None:
    compiled = pb.jit(stored)
    for x in (0.0, 2.0, 2.5):
        plain, ours = (SimpleNamespace(x=x, v=1.5, hits=0) for _ in range(2))
        assert compiled(ours, n) == stored(plain, n)
        assert ours == plain and type(ours.x) is float and type(ours.hits) is int


def test_a_call_that_raises_changes_nothing() -> None:
    def failing(p: Any) -> Any:
        p.a = p.a + 1.0
        return 1.0 / (p.a - 2.0)

    p = SimpleNamespace(a=1.0)
    with pytest.raises(ZeroDivisionError):
        pb.jit(failing)(p)
    assert p.a == 1.0


def test_changes_under_a_gradient_and_in_another_namespace() -> None:
    def loss(x: float, log: Any) -> float:
        y = x * x
        log.inner.last = y
        log.count += 1
        return y * 3.0

    log = SimpleNamespace(count=0, inner=SimpleNamespace(last=None))
    assert pb.grad(loss)(2.0, log) == 12.0
    assert log.count == 1 and log.inner.last == 4.0


def test_identities() -> None:
    p = SimpleNamespace(a=1.0)
    for q in (p, SimpleNamespace(a=1.0)):
        same = pb.jit(lambda p, q: (p is q, p.a + q.a))
        assert [same(p, q) for _ in range(4)] == [(p is q, 2.0)] * 4

    def both(p: Any, q: Any) -> float:
        p.a = p.a + 1.0
        return q.a

    compiled = pb.jit(both)
    assert compiled(p, p) == 2.0 and p.a == 2.0
    assert compiled(p, SimpleNamespace(a=7.0)) == 7.0 and p.a == 3.0


def test_what_is_no_tree_is_static() -> None:
    cyclic = SimpleNamespace(a=2.0)
    cyclic.me = cyclic
    odd = SimpleNamespace(a=2.0, names=np.array(["x"]), data=bytearray(2), objects=np.array([None], object))
    compiled = pb.jit(lambda p: p.a * 3.0)
    for p in (cyclic, odd):
        for _ in range(4):
            assert compiled(p) == 6.0
        p.a = 3.0
        assert compiled(p) == 9.0


def test_methods_of_instances_and_functions_are_followed() -> None:
    p = SimpleNamespace(f=lambda v: v * 3.0 if v > 0 else -v, a=1.0)
    compiled = pb.jit(lambda p: p.f(p.a))
    for a in (1.0, -2.0, 4.0):
        p.a = a
        assert compiled(p) == p.f(a)


def test_vmap_and_captured_namespaces() -> None:
    assert pb.vmap(lambda p: p.a * 2)(SimpleNamespace(a=np.arange(3.0))).tolist() == [0.0, 2.0, 4.0]
    outside = SimpleNamespace(a=1.0)
    compiled = pb.jit(lambda x: outside.a * x)
    assert compiled(2.0) == 2.0
    outside.a = 5.0
    assert compiled(2.0) == 10.0
