"""The systems that are compared: one function each that prepares a workload and returns a call without
arguments.

A prepared call computes everything and waits for it. Arguments are placed where the system wants them (JAX:
on its device) before the clock starts, and what it returns is whatever the system returns.
"""

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from workload import Workload

Call = Callable[[], Any]


def retarget(function: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    """The same code with other globals; functions of the same module that it calls are retargeted too."""
    assert isinstance(function, types.FunctionType)
    namespace = {**function.__globals__, **names}
    for name in function.__code__.co_names:
        helper = function.__globals__.get(name)
        ours = isinstance(helper, types.FunctionType) and helper.__module__ == function.__module__
        if ours and name not in names:
            namespace[name] = retarget(helper, names)
    return types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)


def prepare_numpy(workload: Workload) -> Call:
    return functools.partial(workload.by_hand, *workload.arguments())


def prepare_pullback(workload: Workload) -> Call:
    import pullback as pb

    function = workload.function
    if workload.wanted:
        function = pb.value_and_grad(function, argnums=workload.wanted)
    return functools.partial(pb.jit(function), *workload.arguments())


def prepare_jax(workload: Workload) -> Call:
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    special = importlib.import_module("jax.scipy.special")
    jnp = importlib.import_module("jax.numpy")
    shim = types.SimpleNamespace(value_and_grad=jax.value_and_grad, scan=jax.lax.scan)
    function = retarget(workload.function, {"np": jnp, "erf": special.erf, "pb": shim})
    if workload.wanted:
        function = jax.value_and_grad(function, argnums=workload.wanted)
    compiled = jax.jit(function)
    arguments = jax.device_put(workload.arguments())
    return lambda: jax.block_until_ready(compiled(*arguments))


def prepare_autograd(workload: Workload) -> Call:
    import autograd

    special = importlib.import_module("autograd.scipy.special")
    anp = importlib.import_module("autograd.numpy")

    def value_and_grad(function: Callable[..., Any], argnums: Any) -> Callable[..., Any]:
        return autograd.value_and_grad(function, argnum=argnums)

    def scan(*arguments: Any) -> Any:
        raise NotImplementedError("no loop but Python's")

    shim = types.SimpleNamespace(value_and_grad=value_and_grad, scan=scan)
    function = retarget(workload.function, {"np": anp, "erf": special.erf, "pb": shim})
    if workload.wanted:
        function = value_and_grad(function, workload.wanted)
    return functools.partial(function, *workload.arguments())


def prepare_numba(workload: Workload) -> Call:
    loops = importlib.import_module("numba_loops")
    function = getattr(loops, workload.name, None)
    if function is None:
        raise NotImplementedError("no loop written by hand for this one")
    return functools.partial(function, *workload.arguments())


def prepare_copy(workload: Workload) -> Call:
    """The limit set by memory: a copy that reads and writes as many bytes as the workload must."""
    if not workload.traffic:
        raise NotImplementedError("not limited by memory")
    source = np.ones(workload.traffic // 16)
    return functools.partial(np.copyto, np.zeros_like(source), source)


SYSTEMS: dict[str, Callable[[Workload], Call]] = {
    "pullback": prepare_pullback,
    "numpy": prepare_numpy,
    "jax": prepare_jax,
    "autograd": prepare_autograd,
    "numba": prepare_numba,
    "copy": prepare_copy,
}
