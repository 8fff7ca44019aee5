"""Compiles plain NumPy functions and their gradients to machine code."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

# In a source tree the other packages lie beside this folder, not in it; so it also works from there.
if not Path(__file__).parent.joinpath("ir").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

from pullback import extend, tree
from pullback.api import grad, jit, value_and_grad
from pullback.callbacks import ShapeDtypeStruct, callback
from pullback.control import associative_scan, cond, fori_loop, map, scan, switch, while_loop
from pullback.counts import CacheInfo, cache_info
from pullback.custom import custom_jvp, custom_vjp
from pullback.debugging.gradients import check_grad, check_grads
from pullback.debugging.nonfinite import find_nan
from pullback.debugging.printing import print, print_grad
from pullback.derivatives import checkpoint, hessian, hvp, jacfwd, jacobian, jacrev, jvp, linearize, stop_gradient, vjp
from pullback.entries import RetraceWarning
from pullback.hips import (
    const_graph,
    deriv,
    elementwise_grad,
    grad_and_aux,
    grad_named,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    vector_jacobian_product,
)
from pullback.mapping import vmap
from pullback.runtime.program import trim
from pullback.runtime.threads import get_num_threads, set_num_threads
from pullback.solvers import fixed_point, odeint
from pullback.tracer import TraceError
from pullback.tracer.unrolled import UnrollWarning
from pullback.tree import ravel as flatten

if TYPE_CHECKING:
    from pullback import optimizers, random

__all__ = [
    "CacheInfo", "RetraceWarning", "ShapeDtypeStruct", "TraceError", "UnrollWarning", "__version__", "associative_scan",
    "cache_info", "callback", "check_grad", "check_grads", "checkpoint", "cond", "const_graph", "custom_jvp", "custom_vjp",
    "deriv", "elementwise_grad", "extend", "find_nan", "fixed_point", "flatten", "fori_loop", "get_num_threads", "grad",
    "grad_and_aux", "grad_named", "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad", "hvp",
    "jacfwd", "jacobian", "jacrev", "jit", "jvp", "linearize", "make_ggnvp", "make_hvp", "make_jvp", "make_jvp_reversemode",
    "make_vjp", "map", "multigrad_dict", "odeint", "optimizers", "print", "print_grad", "random", "scan", "set_num_threads",
    "stop_gradient", "switch", "tensor_jacobian_product", "tree", "trim", "value_and_grad", "vector_jacobian_product", "vjp",
    "vmap", "while_loop",
]  # fmt: skip

__version__ = "0.1.0"


def _imported_later(name: str) -> Any:
    """Modules that are imported when they are first asked for."""
    if name in ("optimizers", "random"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:
    __getattr__ = _imported_later
