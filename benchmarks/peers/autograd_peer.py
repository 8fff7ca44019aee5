"""autograd: the same functions on its NumPy, one op at a time."""

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

from benchmarks.case import Arguments, Case
from benchmarks.peers.retarget import retarget
from benchmarks.peers.unrolled import fori_loop, scan

Call = Callable[[], Any]


def prepare_autograd(case: Case, arguments: Arguments) -> Call:
    if not case.wanted:
        raise NotImplementedError("a forward function is NumPy's there")
    autograd = importlib.import_module("autograd")
    anp = importlib.import_module("autograd.numpy")
    special = importlib.import_module("autograd.scipy.special")

    def value_and_grad(function: Callable[..., Any], argnums: Any) -> Callable[..., Any]:
        return autograd.value_and_grad(function, argnum=argnums)

    def add_inside(u: Any, change: Any) -> Any:
        return u + anp.pad(change, 1, "constant")

    shim = types.SimpleNamespace(value_and_grad=value_and_grad, scan=functools.partial(scan, anp.stack), fori_loop=fori_loop)
    function = retarget(case.function, {"np": anp, "erf": special.erf, "pb": shim, "add_inside": add_inside})
    return functools.partial(value_and_grad(function, case.wanted), *arguments)
