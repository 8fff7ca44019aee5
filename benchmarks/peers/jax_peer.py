"""JAX: the same functions on jax.numpy, jitted; arguments are placed on its device before the clock starts."""

import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case
from benchmarks.peers.retarget import retarget

Array = Any
Call = Callable[[], Any]


def variants(jax: Any) -> dict[str, Callable[..., Any]]:
    """What a user of JAX writes where plain NumPy has no counterpart there."""
    jnp = importlib.import_module("jax.numpy")

    def xent(z: Array, y: Array) -> Array:
        return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], axis=1)[:, 0])

    def add_inside(u: Array, change: Array) -> Array:
        return u.at[1:-1, 1:-1].add(change)

    def convolve(x: Array, w: Array) -> Array:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")

    def pool(x: Array) -> Array:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    return {"xent": xent, "add_inside": add_inside, "convolve": convolve, "pool": pool}


def prepare_jax(case: Case, arguments: Arguments) -> Call:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    special = importlib.import_module("jax.scipy.special")
    jnp = importlib.import_module("jax.numpy")
    shim = types.SimpleNamespace(value_and_grad=jax.value_and_grad, scan=jax.lax.scan, fori_loop=jax.lax.fori_loop)
    own = variants(jax)
    names = {"np": jnp, "erf": special.erf, "pb": shim, **own}
    function = own.get(case.function.__name__) or retarget(case.function, names)
    if case.wanted:
        function = jax.value_and_grad(function, argnums=case.argnums)
    compiled = jax.jit(function)
    placed = jax.device_put(arguments)
    return lambda: jax.tree.map(np.asarray, compiled(*placed))
