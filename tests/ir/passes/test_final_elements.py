"""Gradients of nests of loops that read final elements from the array after the loop: their values and what they keep."""

import linecache
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

N = 12
"""The extent of each axis: long enough that nests are rolled."""
DOUBLES = 8
"""Largest number of doubles that a value and gradient keep at once, for each element of the matrix."""


def lu(a: Any) -> Any:
    n, u = a.shape[0], a.copy()
    for k in range(n):
        for i in range(k + 1, n):
            f = u[i, k] / u[k, k]
            u[i, k] = f
            for j in range(k + 1, n):
                u[i, j] = u[i, j] - f * u[k, j]
    return np.sum(np.log(np.abs(np.diag(u))))


def lu_by_blocks(a: Any) -> Any:
    n, u = a.shape[0], a.copy()
    for k in range(n - 1):
        u[k + 1 :, k] /= u[k, k]
        u[k + 1 :, k + 1 :] -= np.outer(u[k + 1 :, k], u[k, k + 1 :])
    return np.sum(np.log(np.abs(np.diag(u))))


def elimination(a: Any) -> Any:
    n, u, b = a.shape[0], a.copy(), a[:, 0] + 1.0
    for k in range(n):
        for i in range(k + 1, n):
            factor = u[i, k] / u[k, k]
            u[i, k:] -= factor * u[k, k:]
            b[i] -= factor * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - u[i, i + 1 :] @ x[i + 1 :]) / u[i, i]
    return np.sum(x * x)


def lu_with_pivots(a: Any) -> Any:
    n, u = a.shape[0], a.copy()
    for k in range(n - 1):
        pivot = k + np.argmax(np.abs(u[k:, k]))
        u[[k, pivot]] = u[[pivot, k]]
        for i in range(k + 1, n):
            u[i, k] /= u[k, k]
            u[i, k + 1 :] -= u[i, k] * u[k, k + 1 :]
    return np.sum(np.log(np.abs(np.diag(u))))


def cholesky(a: Any) -> Any:
    n, c = a.shape[0], np.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= c[i, k] * c[j, k]
            if i == j:
                c[i, j] = np.sqrt(s)
            else:
                c[i, j] = s / c[j, j]
    return np.sum(np.log(np.diag(c)))


def cholesky_by_products(a: Any) -> Any:
    n, c = a.shape[0], np.zeros_like(a)
    for j in range(n):
        c[j, j] = np.sqrt(a[j, j] - np.sum(c[j, :j] ** 2))
        for i in range(j + 1, n):
            c[i, j] = (a[i, j] - c[i, :j] @ c[j, :j]) / c[j, j]
    return np.sum(np.log(np.diag(c)))


def cholesky_by_columns(a: Any) -> Any:
    n, c = a.shape[0], a.copy()
    for k in range(n):
        c[k, k] = np.sqrt(c[k, k])
        c[k + 1 :, k] /= c[k, k]
        for j in range(k + 1, n):
            c[j:, j] -= c[j:, k] * c[j, k]
    return np.sum(np.log(np.diag(c)))


def forward_substitution(a: Any) -> Any:
    n, x = a.shape[0], np.zeros(a.shape[0])
    for i in range(n):
        s = a[0, i]
        for j in range(i):
            s -= a[i, j] * x[j]
        x[i] = s / a[i, i]
    return np.sum(x * x)


def back_substitution(a: Any) -> Any:
    n, x = a.shape[0], np.zeros(a.shape[0])
    for i in range(n - 1, -1, -1):
        x[i] = (a[0, i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return np.sum(x * x)


FACTORISATIONS = [
    lu, lu_by_blocks, elimination, lu_with_pivots, cholesky, cholesky_by_products, cholesky_by_columns, forward_substitution,
    back_substitution,
]  # fmt: skip


def matrix(n: int) -> Any:
    m = np.random.default_rng(0).standard_normal((n, n))
    return m @ m.T / n + 2 * np.eye(n)


@pytest.mark.parametrize("f", FACTORISATIONS, ids=lambda f: f.__name__)
def test_a_factorisation_keeps_no_array_of_each_iteration(f: Callable[..., Any]) -> None:
    n = 110
    a, direction, step = matrix(n), np.random.default_rng(1).standard_normal((n, n)), 1e-6
    compiled = pb.jit(pb.value_and_grad(f))
    value, gradient = compiled(a)
    assert np.isclose(value, f(a), rtol=1e-12)
    by_differences = (f(a + step * direction) - f(a - step * direction)) / (2 * step)
    assert np.isclose(np.sum(gradient * direction), by_differences, rtol=1e-5)
    assert compiled.memory(a).peak_bytes <= DOUBLES * 8 * n * n


@pytest.mark.parametrize("f", [lu, cholesky], ids=lambda f: f.__name__)
def test_second_derivatives(f: Callable[..., Any]) -> None:
    n = 10
    a, g = matrix(n), np.random.default_rng(2)
    v, step = g.standard_normal((n, n)), 1e-6
    gradient = pb.jit(pb.grad(f))
    product = pb.grad(lambda x: np.sum(pb.grad(f)(x) * v))(a)
    by_differences = (gradient(a + step * v) - gradient(a - step * v)) / (2 * step)
    assert np.allclose(product, by_differences, rtol=1e-5, atol=1e-6)


class Programs:
    """Random programs: nests of loops over a matrix ``u`` and a vector ``v``, with indices that are affine, or nearly."""

    def __init__(self, seed: int) -> None:
        self.random, self.lines = random.Random(seed), []
        self.statements((), 0, "    ")
        body = "\n".join(self.lines)
        self.source = f"def f(x, y):\n    u, v = x.copy(), y.copy()\n{body}\n    return np.sum(u * u) + np.sum(np.cos(v))\n"
        name = f"<program {seed}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope: dict[str, Any] = {"np": np}
        exec(compile(self.source, name, "exec"), scope)
        self.function = scope["f"]

    def index(self, names: tuple[str, ...]) -> str:
        v, by = self.random.choice(names), self.random.randrange(1, 4)
        forms = [v] * 6 + [str(self.random.randrange(N)), f"{N - 1} - {v}", f"{N - 1} - {v}"]
        forms += [f"({v} + {by}) % {N}", f"min({v} + {by}, {N - 1})", f"max({v} - {by}, 0)"]
        return self.random.choice(forms)

    def element(self, names: tuple[str, ...]) -> str:
        if self.random.random() < 0.3:
            return f"v[{self.index(names)}]"
        return f"u[{self.index(names)}, {self.index(names)}]"

    def part(self, names: tuple[str, ...]) -> str:
        v, other = self.random.choice(names), self.index(names)
        windows = [f"v[max({v} - 2, 0) : {v}]", f"v[{v} : min({v} + 3, {N})]", f"u[max({v} - 2, 0) : {v} + 1, {other}]"]
        return self.random.choice(
            [f"u[{other}, :{v}]", f"u[{other}, {v}:]", f"u[:{v}, {other}]", f"v[{v}:]", f"v[:{v}]", *windows]
        )

    def range(self, names: tuple[str, ...]) -> str:
        forms = [f"range({N})", f"range({N - 1}, -1, -1)", f"range({self.random.randrange(3)}, {N})"]
        for v in names[-1:]:
            forms += [f"range({v})", f"range({v} + 1, {N})", f"range({v} + 1)", f"range({N - 1}, {v}, -1)"] * 2
        return self.random.choice(forms)

    def statements(self, names: tuple[str, ...], depth: int, indent: str) -> None:
        for _ in range(self.random.randrange(1, 4) if depth < 3 else 1):
            if len(self.lines) > 9:
                self.lines.append(f"{indent}pass")
                return
            kind = self.random.random()
            if not names or (depth < 3 and kind < 0.45):
                variable = "ijk"[depth]
                self.lines.append(f"{indent}for {variable} in {self.range(names)}:")
                self.statements((*names, variable), depth + 1, indent + "    ")
            elif kind < 0.55 and len(indent) < 20:
                left, right = self.random.choice(names), self.random.choice((*names, "3"))
                self.lines.append(f"{indent}if {left} {self.random.choice(['<', '==', '!=', '>='])} {right}:")
                self.statements(names, 3, indent + "    ")
            else:
                self.update(names, indent)

    def update(self, names: tuple[str, ...], indent: str) -> None:
        to, a, b = (self.element(names) for _ in range(3))
        i, j = self.random.choice(names), self.random.choice(names)
        forms = [
            [f"{to} = np.sin({a}) + 0.5 * {b}"],
            [f"{to} = 0.5 * {a} * {b} + 0.1"],
            [f"{to} -= 0.3 * {a} * {b}"],
            [f"{to} = {a} / (2.0 + {b} ** 2)"],
            [f"f = {a} / (1.5 + {b} ** 2)", f"{to} = f", f"{self.element(names)} -= f * {b}"],
            [f"{to} = 0.2 * np.sum({self.part(names)} ** 2)"],
            [f"u[[{i}, {j}]] = u[[{j}, {i}]]"],
        ]
        self.lines += [indent + line for line in self.random.choice(forms)]


def check(seed: int) -> None:
    """Check the value and a directional derivative of a random program."""
    program, g = Programs(seed), np.random.default_rng(seed)
    f, x, y = program.function, g.standard_normal((N, N)), g.standard_normal(N)
    with np.errstate(all="ignore"):
        expected = f(x, y)
    if not abs(expected) < 1e6:
        return
    value, (dx, dy) = pb.value_and_grad(f, argnums=(0, 1))(x, y)
    u, v = g.standard_normal((N, N)), g.standard_normal(N)
    steps = [1e-6, 3e-7]
    by_differences, nearer = ((f(x + s * u, y + s * v) - f(x - s * u, y - s * v)) / (2 * s) for s in steps)
    scale = max(1, abs(by_differences), abs(expected))
    if not abs(by_differences - nearer) <= 1e-5 * scale:
        return
    assert abs(value - expected) <= 1e-9 * scale, program.source
    assert abs(np.sum(dx * u) + np.sum(dy * v) - by_differences) <= 3e-5 * scale, program.source


@pytest.mark.filterwarnings("ignore::pullback.UnrollWarning")
@pytest.mark.parametrize("first", range(0, 30, 5))
def test_random_nests(first: int) -> None:
    for seed in range(first, first + 5):
        check(seed)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pullback.UnrollWarning")
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_random_nests(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)
