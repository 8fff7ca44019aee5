"""Compiles plain NumPy functions and their gradients to machine code."""

from pathlib import Path

# In a source tree the other packages lie beside this folder, not in it; so it also works from there.
if not Path(__file__).parent.joinpath("ir").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

from pullback import extend, random, tree
from pullback.api import grad, jit, value_and_grad
from pullback.callbacks import ShapeDtypeStruct, callback
from pullback.counts import CacheInfo, cache_info
from pullback.custom import custom_jvp, custom_vjp
from pullback.debugging.gradients import check_grad
from pullback.debugging.nonfinite import find_nan
from pullback.debugging.printing import print, print_grad
from pullback.derivatives import hessian, hvp, jacfwd, jacobian, jacrev, jvp, linearize, stop_gradient, vjp
from pullback.entries import RetraceWarning
from pullback.mapping import vmap
from pullback.tracer import TraceError

__all__ = [
    "CacheInfo", "RetraceWarning", "ShapeDtypeStruct", "TraceError", "__version__", "cache_info", "callback", "check_grad",
    "custom_jvp", "custom_vjp", "extend", "find_nan", "grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jit", "jvp",
    "linearize", "print", "print_grad", "random", "stop_gradient", "tree", "value_and_grad", "vjp", "vmap",
]  # fmt: skip

__version__ = "0.1.0"
