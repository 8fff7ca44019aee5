"""The programs whose loops a user of JAX writes as scans, by name. The others have no counterpart that JAX differentiates."""

from typing import Any

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

Array = Any


def lorenz(x: Array, y: Array, z: Array, steps: int, h: Array) -> Array:
    def slope(s: Array) -> Array:
        x, y, z = s
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(s: Array, _: Any) -> Any:
        k1 = slope(s)
        k2 = slope(s + h / 2 * k1)
        k3 = slope(s + h / 2 * k2)
        k4 = slope(s + h * k3)
        return s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, jnp.stack([x, y, z]), None, length=steps)[0].sum()


def garch(r: Array, omega: Array, alpha: Array, beta: Array) -> Array:
    def step(s: Any, r: Array) -> Any:
        h, likelihood = s
        likelihood = likelihood - 0.5 * (jnp.log(h) + r * r / h)
        return (jnp.maximum(omega + alpha * r * r + beta * h, 1e-8), likelihood), None

    return jax.lax.scan(step, (omega / (1 - alpha - beta), 0.0), r)[0][1]


def seidel(u: Array, sweeps: int) -> Array:
    def element(before: Array, after: Array) -> Any:
        new = 0.5 * (before + after)
        return new, new

    def sweep(u: Array, _: Any) -> Any:
        return u.at[1:-1].set(jax.lax.scan(element, u[0], u[2:])[1]), None

    return jax.lax.scan(sweep, u, None, length=sweeps)[0].sum()


def iir(x: Array, b0: Array, b1: Array, b2: Array, a1: Array, a2: Array) -> Array:
    def step(s: Any, driven: Array) -> Any:
        y = driven - a1 * s[0] - a2 * s[1]
        return (y, s[0]), y

    return (jax.lax.scan(step, (0.0, 0.0), b0 * x[2:] + b1 * x[1:-1] + b2 * x[:-2])[1] ** 2).sum()


def kalman(z: Array, transition: Array, observation: Array, q: Array, r: Array) -> Array:
    def step(state: Any, z: Array) -> Any:
        x, p, total = state
        x = transition @ x
        p = transition @ p @ transition.T + q * jnp.eye(2)
        s = observation @ p @ observation + r
        residual = z - observation @ x
        gain = p @ observation / s
        p = p - jnp.outer(gain, observation @ p)
        return (x + gain * residual, p, total - 0.5 * (jnp.log(s) + residual * residual / s)), None

    return jax.lax.scan(step, (jnp.zeros(2), jnp.eye(2), 0.0), z)[0][2]


def thomas(lower: Array, diagonal: Array, upper: Array, right: Array) -> Array:
    def forward(s: Any, row: Any) -> Any:
        c, d = s
        lower, diagonal, upper, right = row
        w = diagonal - lower * c
        s = upper / w, (right - lower * d) / w
        return s, s

    def backward(x: Array, s: Any) -> Any:
        x = s[1] - s[0] * x
        return x, x

    c, d = jax.lax.scan(forward, (0.0, 0.0), (lower, diagonal, upper, right))[1]
    return jax.lax.scan(backward, 0.0, (c, d), reverse=True)[1].sum()


def viterbi(start: Array, transition: Array, emission: Array, observed: Array) -> Array:
    def step(score: Array, o: Array) -> Any:
        return (score[:, None] + transition).max(axis=0) + emission[:, o], None

    return jax.lax.scan(step, start + emission[:, observed[0]], observed[1:])[0].max()


def hmm_forward(start: Array, transition: Array, emission: Array, observed: Array) -> Array:
    def step(alpha: Array, o: Array) -> Any:
        after = alpha @ transition * emission[:, o]
        c = after.sum()
        return after / c, jnp.log(c)

    return jax.lax.scan(step, start * emission[:, observed[0]], observed[1:])[1].sum()


def nbody(x: Array, v: Array, mass: Array, steps: int, dt: float) -> Array:
    def step(s: Any, _: Any) -> Any:
        x, v = s
        d = x[None] - x[:, None]
        r = (d * d).sum(axis=2) + 0.01
        v = v + ((dt * mass[None] / (r * jnp.sqrt(r)))[:, :, None] * d).sum(axis=1)
        return (x + dt * v, v), None

    v = jax.lax.scan(step, (x, v), None, length=steps)[0][1]
    return (0.5 * mass * (v * v).sum(axis=1)).sum()


PROGRAMS = {f.__name__: f for f in (lorenz, garch, seidel, iir, kalman, thomas, viterbi, hmm_forward, nbody)}
