"""Random programs of control flow: nested branches and loops over a state of an array, a number and an integer.

A program is a function of the namespace that its control flow comes from: pullback, or ``Plain``, which is Python's own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import pullback as pb

State = tuple[Any, Any, Any]
Part = Callable[[Any, State], State]

SIZE = 3
ROWS = 4


def _stack(rows: list[Any]) -> Any:
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


def _scan(f: Any, init: Any, xs: Any, reverse: bool = False, checkpoint: Any = None) -> Any:
    order = range(len(xs))
    result: list[Any] = [None] * len(xs)
    for k in reversed(order) if reverse else order:
        init, result[k] = f(init, xs[k])
    return init, _stack(result)


def _fori_loop(lower: Any, upper: Any, body: Any, init: Any, checkpoint: Any = None) -> Any:
    for i in range(int(lower), int(upper)):
        init = body(i, init)
    return init


def _while_loop(cond: Any, body: Any, init: Any, checkpoint: Any = None) -> Any:
    while cond(init):
        init = body(init)
    return init


Plain = SimpleNamespace(
    cond=lambda p, true, false, *operands: true(*operands) if p else false(*operands),
    switch=lambda k, branches, *operands: branches[min(max(int(k), 0), len(branches) - 1)](*operands),
    scan=_scan,
    fori_loop=_fori_loop,
    while_loop=_while_loop,
    checkpoint=lambda f: f,
)
Compiled = SimpleNamespace(
    cond=pb.cond, switch=pb.switch, scan=pb.scan, fori_loop=pb.fori_loop, while_loop=pb.while_loop, checkpoint=pb.checkpoint
)


class Program:
    """``program(of)``: the function of an array a[3], a number, an integer, w[3,3] and xs[4,3], with control flow from ``of``."""

    def __init__(self, seed: int, depth: int = 3) -> None:
        self.rng = np.random.default_rng(seed)
        self.text: list[str] = []
        self.part = self.sequence(depth, 0)
        self.weights = self.rng.normal(size=SIZE)

    def __call__(self, of: Any) -> Callable[..., Any]:
        def function(a: Any, s: Any, k: Any, w: Any, xs: Any) -> Any:
            scope = SimpleNamespace(of=of, w=w, xs=xs)
            a, s, k = self.part(scope, (a, s, k))
            return np.sum(np.tanh(a) * self.weights) + np.tanh(s) + 0 * k

        return function

    def __str__(self) -> str:
        return "\n".join(self.text)

    def say(self, level: int, text: str) -> None:
        self.text.append("  " * level + text)

    def sequence(self, depth: int, level: int) -> Part:
        parts = [self.step(depth, level) for _ in range(self.rng.integers(1, 4))]

        def run(scope: Any, state: State) -> State:
            for part in parts:
                state = part(scope, state)
            return state

        return run

    def step(self, depth: int, level: int) -> Part:
        names = ["move", "mix", "reads", "writes", "where", "count", "adds"]
        if depth:
            names += ["cond", "switch", "fori", "fori_to", "while_counts", "while_small", "scan", "scan_outer", "checkpoint"] * 2
        name = names[self.rng.integers(len(names))]
        self.say(level, name)
        part: Part = getattr(self, name)(depth - 1, level + 1)
        return part

    def number(self) -> float:
        return float(np.round(self.rng.uniform(-1.2, 1.2), 2))

    # steps

    def move(self, depth: int, level: int) -> Part:
        c, d, f = self.number(), self.number(), [np.sin, np.tanh, np.exp, np.cos][self.rng.integers(4)]
        return lambda scope, state: (np.tanh(f(c * state[0]) + d * state[1]), state[1], state[2])

    def mix(self, depth: int, level: int) -> Part:
        c = self.number()
        return lambda scope, state: (np.tanh(scope.w @ state[0]), np.sin(np.sum(state[0]) * c + state[1]), state[2])

    def reads(self, depth: int, level: int) -> Part:
        c = self.number()
        return lambda scope, state: (state[0], np.tanh(state[1] + c * state[0][state[2] % SIZE]), state[2])

    def adds(self, depth: int, level: int) -> Part:
        c = self.number()
        return lambda scope, state: (state[0] + c * scope.xs[state[2] % ROWS], state[1], state[2])

    def writes(self, depth: int, level: int) -> Part:
        c, adds = self.number(), bool(self.rng.integers(2))

        def run(scope: Any, state: State) -> State:
            a, s, k = state
            a = a.copy()
            if adds:
                a[k % SIZE] += np.sin(c * s)
            else:
                a[k % SIZE] = np.sin(c * s)
            return a, s, k

        return run

    def where(self, depth: int, level: int) -> Part:
        c = self.number()
        return lambda scope, state: (np.where(state[0] > c, np.sqrt(np.abs(state[0] - c)), state[0]), state[1], state[2])

    def count(self, depth: int, level: int) -> Part:
        c = int(self.rng.integers(1, 4))
        return lambda scope, state: (state[0], state[1], state[2] * c + 1)

    # control flow

    def cond(self, depth: int, level: int) -> Part:
        c, on = self.number(), self.rng.integers(2)
        parts = self.sequence(depth, level), self.sequence(depth, level)

        def run(scope: Any, state: State) -> State:
            predicate = state[1] > c if on else state[2] % 2 == 0
            result: State = scope.of.cond(predicate, *(lambda *s, p=p: p(scope, s) for p in parts), *state)
            return result

        return run

    def switch(self, depth: int, level: int) -> Part:
        parts = [self.sequence(depth, level) for _ in range(3)]
        shift = int(self.rng.integers(-1, 2))

        def run(scope: Any, state: State) -> State:
            result: State = scope.of.switch(state[2] % 4 + shift, [lambda *s, p=p: p(scope, s) for p in parts], *state)
            return result

        return run

    def fori(self, depth: int, level: int) -> Part:
        part, count, checkpoint = self.sequence(depth, level), int(self.rng.integers(0, 4)), self.keep()

        def run(scope: Any, state: State) -> State:
            def body(i: Any, s: State) -> State:
                a, b, k = part(scope, s)
                return a + 0.1 * i * scope.w[i % SIZE], b, k + i

            result: State = scope.of.fori_loop(0, count, body, state, checkpoint=checkpoint)
            return result

        return run

    def fori_to(self, depth: int, level: int) -> Part:
        part, checkpoint = self.sequence(depth, level), self.keep()

        def run(scope: Any, state: State) -> State:
            result: State = scope.of.fori_loop(1, state[2] % 4, lambda i, s: part(scope, s), state, checkpoint=checkpoint)
            return result

        return run

    def repeat(self, bound: int, part: Part, scope: Any, state: State, checkpoint: Any, small: float | None) -> State:
        def go_on(c: Any) -> Any:
            i, (a, _, _) = c
            return i < bound if small is None else (i < bound) & (np.sum(a**2) < small)

        _, result = scope.of.while_loop(go_on, lambda c: (c[0] + 1, part(scope, c[1])), (0, state), checkpoint=checkpoint)
        last: State = result
        return last

    def while_counts(self, depth: int, level: int) -> Part:
        part, bound, checkpoint = self.sequence(depth, level), int(self.rng.integers(0, 4)), self.keep()
        return lambda scope, state: self.repeat(bound, part, scope, state, checkpoint, None)

    def while_small(self, depth: int, level: int) -> Part:
        part, checkpoint = self.sequence(depth, level), self.keep()
        return lambda scope, state: self.repeat(4, part, scope, state, checkpoint, 1.3)

    def scan(self, depth: int, level: int) -> Part:
        part, reverse, checkpoint = self.sequence(depth, level), bool(self.rng.integers(2)), self.keep()

        def run(scope: Any, state: State) -> State:
            def body(s: State, x: Any) -> Any:
                a, b, k = part(scope, s)
                return (np.tanh(a * x), b, k), (a * b, np.sin(b))

            result, (rows, numbers) = scope.of.scan(body, state, scope.xs, reverse=reverse, checkpoint=checkpoint)
            return result[0] + 0.1 * np.sum(rows, 0), result[1] + 0.1 * numbers[1], result[2]

        return run

    def scan_outer(self, depth: int, level: int) -> Part:
        c = self.number()

        def run(scope: Any, state: State) -> State:
            def body(s: Any, x: Any) -> Any:
                return s + c * x, (s * x, np.sum(s))

            result, (rows, _) = scope.of.scan(body, state[0], scope.xs * state[1])
            return np.tanh(result), np.sum(np.sin(rows[1:] * rows[:-1])) * 0.1, state[2]

        return run

    def checkpoint(self, depth: int, level: int) -> Part:
        part = self.sequence(depth, level)

        def run(scope: Any, state: State) -> State:
            result: State = scope.of.checkpoint(lambda *s: part(scope, s))(*state)
            return result

        return run

    def keep(self) -> str | int | None:
        options: list[str | int | None] = [None, None, "sqrt", 256]
        return options[self.rng.integers(len(options))]
