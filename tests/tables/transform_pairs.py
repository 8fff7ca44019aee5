"""Transforms of functions of a vector, written once and run in three worlds: compiled, plain Python with differences, and JAX.

A transform takes a function of a vector that gives a vector, and makes another; so any two can be put together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import pullback as pb

Vector = Any
Function = Callable[[Vector], Vector]

X = np.array([0.83, -0.52, 0.61])
V = np.array([0.3, -1.1, 0.7])
MIX = np.array([[0.5, -0.4, 0.3], [0.2, 0.6, -0.7], [-0.3, 0.1, 0.8]])
STEP = 2e-3


def base(m: Any) -> Function:
    """The function that everything is done to."""
    return lambda x: m.np.tanh(m.np.dot(MIX, x)) * x + 0.5 * m.np.sin(x[::-1])


class Plain:
    """The oracle: loops and branches in Python, derivatives by differences of five points, rules of the user's ignored.

    A value of ``stop_gradient`` is what it was at the point that differences are taken around.
    """

    np = np

    def __init__(self) -> None:
        self._records: list[tuple[list[Any], list[int] | None]] = []

    def stop_gradient(self, x: Any) -> Any:
        for values, at in self._records:
            if at is None:
                values.append(x)
            else:
                x = values[at[0]]
                at[0] += 1
        return x

    def _called(self, f: Function, x: Vector, values: list[Any], is_first: bool) -> Any:
        self._records.append((values, None if is_first else [0]))
        try:
            return np.asarray(f(x))
        finally:
            self._records.pop()

    def jacrev(self, f: Function) -> Function:
        def slopes(x: Vector) -> Any:
            values: list[Any] = []
            shape = self._called(f, x, values, True).shape
            result = np.zeros((*shape, x.size))
            for k in range(x.size):
                e = np.zeros(x.size)
                e[k] = STEP
                parts = [(8, 1), (-8, -1), (-1, 2), (1, -2)]
                result[..., k] = sum(c * self._called(f, x + n * e, values, False) for c, n in parts) / (12 * STEP)
            return result

        return slopes

    jacfwd = jacobian = grad = jacrev

    def value_and_grad(self, f: Function) -> Any:
        return lambda x: (f(x), self.jacrev(f)(x))

    def vjp(self, f: Function, x: Vector) -> Any:
        return f(x), lambda ct: (ct @ self.jacrev(f)(x),)

    def jvp(self, f: Function, primals: Any, tangents: Any) -> Any:
        return f(*primals), self.jacrev(f)(*primals) @ tangents[0]

    def linearize(self, f: Function, x: Vector) -> Any:
        return f(x), lambda v: self.jacrev(f)(x) @ v

    def hessian(self, f: Function) -> Function:
        return self.jacrev(self.jacrev(f))

    def hvp(self, f: Function, primals: Any, tangents: Any) -> Any:
        return self.hessian(f)(*primals) @ tangents[0]

    def vmap(self, f: Any, in_axes: Any = 0, out_axes: int = 0) -> Any:
        def rows(*args: Any) -> Any:
            axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
            size = next(a.shape[k] for a, k in zip(args, axes, strict=True) if k is not None)
            arguments = [[a if k is None else np.take(a, i, k) for a, k in zip(args, axes, strict=True)] for i in range(size)]
            return np.stack([f(*row) for row in arguments], out_axes)

        return rows

    def jit(self, f: Function, **options: Any) -> Function:
        return f

    checkpoint = jit

    def custom_vjp(self, f: Function) -> Any:
        result: Any = lambda x: f(x)  # noqa: E731
        result.defvjp = result.defjvp = lambda *rules: None
        return result

    custom_jvp = custom_vjp

    def callback(self, f: Function, like: Any, x: Vector) -> Any:
        return f(x)

    def cond(self, p: Any, yes: Any, no: Any, *operands: Any) -> Any:
        return yes(*operands) if p else no(*operands)

    def switch(self, k: Any, branches: Any, *operands: Any) -> Any:
        return branches[int(np.clip(k, 0, len(branches) - 1))](*operands)

    def while_loop(self, go: Any, body: Any, state: Any) -> Any:
        while go(state):
            state = body(state)
        return state

    def fori_loop(self, lower: int, upper: int, body: Any, state: Any) -> Any:
        for k in range(int(lower), int(upper)):
            state = body(k, state)
        return state

    def scan(self, body: Any, state: Any, xs: Any, reverse: bool = False) -> Any:
        out = []
        for row in xs[::-1] if reverse else xs:
            state, y = body(state, row)
            out.append(y)
        return state, np.stack(out[::-1] if reverse else out)

    def map(self, f: Function, xs: Any) -> Any:
        return np.stack([f(row) for row in xs])

    def associative_scan(self, op: Any, xs: Any) -> Any:
        out = [xs[0]]
        for row in xs[1:]:
            out.append(op(out[-1], row))
        return np.stack(out)


def compiled() -> Any:
    """The names of this package, with NumPy."""
    return SimpleNamespace(np=np, **{name: getattr(pb, name) for name in pb.__all__ if not name.startswith("_")})


def peer() -> Any:
    """The same names of JAX. Raises ImportError."""
    import jax
    import jax.numpy

    jax.config.update("jax_enable_x64", True)
    own = {name: getattr(jax, name) for name in PEER if hasattr(jax, name)}
    lax = {name: getattr(jax.lax, name) for name in PEER if name not in own and hasattr(jax.lax, name)}

    def hvp(f: Any, primals: Any, tangents: Any) -> Any:
        return jax.jvp(jax.grad(f), primals, tangents)[1]

    return SimpleNamespace(np=jax.numpy, jacobian=jax.jacrev, hvp=hvp, **own, **lax)


PEER = [
    "grad", "value_and_grad", "vjp", "jvp", "linearize", "jacfwd", "jacrev", "hessian", "vmap", "checkpoint", "custom_vjp",
    "custom_jvp", "jit", "stop_gradient", "cond", "switch", "while_loop", "fori_loop", "scan", "map", "associative_scan",
]  # fmt: skip


def total(m: Any, y: Vector) -> Any:
    """A number made of all elements of a vector, none like another."""
    return m.np.sum(np.cos(np.arange(math.prod(y.shape)) + 0.5) * y)


def weights(y: Vector) -> Any:
    """A cotangent for a vector."""
    return np.cos(np.arange(math.prod(y.shape)) + 0.5)


def _joined(m: Any, *parts: Any) -> Vector:
    return m.np.concatenate([m.np.reshape(p, (-1,)) for p in parts])


def _grad(m: Any, f: Function) -> Function:
    return m.grad(lambda x: total(m, f(x)))


def _value_and_grad(m: Any, f: Function) -> Function:
    return lambda x: _joined(m, *m.value_and_grad(lambda x: total(m, f(x)))(x))


def _vjp(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        y, pull = m.vjp(f, x)
        return _joined(m, y, pull(weights(y))[0])

    return g


def _jvp(m: Any, f: Function) -> Function:
    return lambda x: _joined(m, *m.jvp(f, (x,), (V,)))


def _linearize(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        y, push = m.linearize(f, x)
        return _joined(m, y, push(V), push(2 * x))

    return g


def _matrix(name: str) -> Any:
    return lambda m, f: lambda x: _joined(m, getattr(m, name)(f)(x))


def _hessian(m: Any, f: Function) -> Function:
    return lambda x: _joined(m, m.hessian(lambda x: total(m, f(x)))(x))


def _hvp(m: Any, f: Function) -> Function:
    return lambda x: m.hvp(lambda x: total(m, f(x)), (x,), (V,))


def _vmap(m: Any, f: Function) -> Function:
    return lambda x: _joined(m, m.vmap(f)(m.np.stack([x, 0.5 * x])))


def _vmap_axes(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        columns = m.np.stack([x, 0.6 * x], 1)
        return _joined(m, m.vmap(lambda z, s: s * f(z + 0.1 * x), (1, 0), 1)(columns, m.np.array([1.0, -0.5])))

    return g


def _checkpoint(m: Any, f: Function) -> Function:
    return m.checkpoint(f)


def _stop_gradient(m: Any, f: Function) -> Function:
    return lambda x: 2 * f(x) - m.stop_gradient(f(x))


def _custom_vjp(m: Any, f: Function) -> Function:
    g = m.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: m.vjp(f, x)[1](ct))
    return g


def _custom_jvp(m: Any, f: Function) -> Function:
    g = m.custom_jvp(f)
    g.defjvp(lambda primals, tangents: m.jvp(f, primals, tangents))
    return g


def _callback(m: Any, f: Function) -> Function:
    like = np.asarray(f(X))
    host = lambda x: np.asarray(f(x))  # noqa: E731
    g = m.custom_vjp(lambda x: m.callback(host, like, x))
    g.defvjp(lambda x: (g(x), x), lambda x, ct: m.vjp(f, x)[1](ct))
    return g


def _jit(m: Any, f: Function) -> Function:
    return m.jit(f)


def _guards(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        k = 0
        while m.np.sum(x * x) > 0.4:
            x = x * 0.8
            k += 1
        return k * f(x) if x[0] > 0 else -f(x)

    return m.jit(g, guards=True)


def _cond(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        branch = m.cond(x[0] > 0.6, lambda z: f(0.5 * z), lambda z: -f(z) * x[1], x)
        return branch + m.cond(x[1] > 0, lambda z: f(z) * np.nan, lambda z: f(z), x)

    return g


def _switch(m: Any, f: Function) -> Function:
    return lambda x: m.switch(m.np.sum(x > 0), [lambda z: f(z) * np.nan, lambda z: f(z) * 2, lambda z: f(z) * x[0], f], x)


def _while_loop(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        def body(state: Any) -> Any:
            k, z, sum = state
            return k + 1, 0.75 * z, sum + 0.5 * f(z) * (k + 1)

        k, z, sum = m.while_loop(lambda state: m.np.sum(state[1] ** 2) > 0.15, body, (0, x, 0 * f(x)))
        return _joined(m, sum, z * k)

    return g


def _fori_loop(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        start = 0 * f(x)
        fixed = m.fori_loop(0, 3, lambda k, sum: sum * 0.9 + f(x * (1 + 0.1 * k)), start)
        return fixed + m.fori_loop(1, m.np.sum(x > 0) + 1, lambda k, sum: m.np.sin(sum) + f(x / k), start)

    return g


def _scan(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        def body(z: Any, row: Any) -> Any:
            y = f(z)
            return 0.8 * z + row * m.np.mean(y), y * x[0]

        rows = m.np.stack([x, V * x[1], 0.3 * x])
        z, ys = m.scan(body, x, rows)
        back, zs = m.scan(body, z, rows, reverse=True)
        return _joined(m, z, ys, back, zs)

    return g


def _map(m: Any, f: Function) -> Function:
    return lambda x: _joined(m, m.map(lambda row: f(row) * x[1], m.np.stack([x, 0.5 * x])))


def _associative_scan(m: Any, f: Function) -> Function:
    def g(x: Vector) -> Vector:
        rows = m.np.stack([f(x * s) for s in (1.0, 0.7, 0.4)])
        return _joined(m, m.associative_scan(lambda a, b: a * b + a + b, rows))

    return g


TRANSFORMS: dict[str, Callable[[Any, Function], Function]] = {
    "grad": _grad, "value_and_grad": _value_and_grad, "vjp": _vjp, "jvp": _jvp, "linearize": _linearize,
    "jacfwd": _matrix("jacfwd"), "jacrev": _matrix("jacrev"), "jacobian": _matrix("jacobian"), "hessian": _hessian, "hvp": _hvp,
    "vmap": _vmap, "vmap_axes": _vmap_axes, "checkpoint": _checkpoint, "stop_gradient": _stop_gradient,
    "custom_vjp": _custom_vjp, "custom_jvp": _custom_jvp, "callback": _callback, "jit": _jit, "guards": _guards, "cond": _cond,
    "switch": _switch, "while_loop": _while_loop, "fori_loop": _fori_loop, "scan": _scan, "map": _map,
    "associative_scan": _associative_scan,
}  # fmt: skip

WITHOUT_PEER = {"callback", "guards"}
LOOPS = {"while_loop", "fori_loop", "scan", "map", "cond", "switch", "vmap", "vmap_axes"}


def makes_sense(outer: str, inner: str) -> bool:
    """A branch in Python cannot be followed for each row, step or branch."""
    return not (inner == "guards" and outer in LOOPS)
