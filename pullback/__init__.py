"""Compile plain NumPy functions and their gradients to machine code."""

from pathlib import Path
from typing import TYPE_CHECKING

# In a source tree the other packages are siblings of this folder, not inside it: add their parent to the package's path.
if not Path(__file__).parent.joinpath("ir").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

# Imported first: it records the files from which all other modules are imported.
from pullback.runtime.cache import source_stamp as _sources  # noqa: F401

# isort: split
from pullback.runtime.compile.platforms import check_interpreter as _check_interpreter
from pullback.runtime.process.gc_pause import paused as _paused

_check_interpreter()
with _paused():  # what the modules create lives as long as the process
    from pullback import tree
    from pullback.compiled.function import LAZY_CALLS as _LAZY_CALLS
    from pullback.ir.core.device_arrays import COMPUTE as _COMPUTE
    from pullback.ir.core.environment import check as _check
    from pullback.ir.core.lazy_imports import later as _later
    from pullback.ir.core.lazy_imports import names_later
    from pullback.programs.logger import configure as _configure_logger
    from pullback.programs.signatures import RetraceWarning
    from pullback.runtime.program.executable import trim
    from pullback.runtime.threads.threadpoolctl_plugin import announce as _announce
    from pullback.runtime.threads.threads import get_num_threads, set_num_threads
    from pullback.tracer import TraceError
    from pullback.tracer.arrays.replacements import twin_in as _twin_in
    from pullback.tracer.transforms.checkpoint import CheckpointWarning
    from pullback.tracer.user_code.unroll_warning import UnrollWarning
    from pullback.transforms.api import grad, jit, value_and_grad
    from pullback.transforms.control_flow import associative_scan, cond, fori_loop, map, scan, switch, while_loop
    from pullback.transforms.custom import custom_jvp, custom_vjp
    from pullback.transforms.derivatives import (
        checkpoint,
        hessian,
        hvp,
        jacfwd,
        jacobian,
        jacrev,
        jvp,
        linearize,
        stop_gradient,
        vjp,
    )
    from pullback.transforms.vmap import vmap
    from pullback.tree import ravel as flatten
    from pullback.version import __version__

if TYPE_CHECKING:
    from pullback import extend, optimizers, random
    from pullback.checking.verification import VerificationError
    from pullback.debugging.check_grad import check_grad, check_grads
    from pullback.debugging.find_nan import find_nan
    from pullback.debugging.printing import print, print_grad
    from pullback.devices import eager as _eager
    from pullback.devices.device_put import DeviceArray, device_put
    from pullback.distributed import lazy as _lazy
    from pullback.distributed.distribute import distribute
    from pullback.distributed.warm import MixedWorkersWarning, warm
    from pullback.exporting.cuda import DeviceExport
    from pullback.exporting.export import Exported, ExportWarning, export
    from pullback.exporting.exporter import ExportError
    from pullback.exporting.load import load
    from pullback.exporting.loaded import Loaded
    from pullback.programs.cache_info import CacheInfo, cache_info
    from pullback.runtime.cuda.driver.errors import DeviceError, DeviceFault, DeviceMemoryError, DeviceWarning
    from pullback.transforms.autograd import (
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
    from pullback.transforms.callback import ShapeDtypeStruct, callback
    from pullback.transforms.solvers import fixed_point, odeint
else:
    _eager, _lazy = _later("pullback.devices.eager"), _later("pullback.distributed.lazy")

__all__ = [
    "CacheInfo", "CheckpointWarning", "DeviceArray", "DeviceError", "DeviceExport", "DeviceFault", "DeviceMemoryError",
    "DeviceWarning", "MixedWorkersWarning", "RetraceWarning", "ShapeDtypeStruct", "TraceError", "UnrollWarning",
    "VerificationError", "__version__",
    "associative_scan",
    "cache_info", "callback", "check_grad", "check_grads", "checkpoint", "cond", "const_graph", "custom_jvp", "custom_vjp",
    "deriv", "device_put", "distribute", "elementwise_grad",
    "ExportError", "ExportWarning", "Exported", "Loaded", "export", "extend", "find_nan",
    "fixed_point", "flatten", "fori_loop", "get_num_threads", "grad", "grad_and_aux", "grad_named", "hessian",
    "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad", "hvp", "jacfwd", "jacobian", "jacrev", "jit", "jvp",
    "linearize", "load", "make_ggnvp", "make_hvp", "make_jvp", "make_jvp_reversemode",
    "make_vjp", "map", "multigrad_dict", "odeint", "optimizers", "print", "print_grad", "random", "scan", "set_num_threads",
    "stop_gradient", "switch", "tensor_jacobian_product", "tree", "trim", "value_and_grad", "vector_jacobian_product", "vjp",
    "vmap", "warm", "while_loop",
]  # fmt: skip

_check()
_configure_logger()
_announce()
_COMPUTE.append(lambda function, args, kwargs: _eager.compute(function, args, kwargs))
_LAZY_CALLS.append(lambda function, args, kwargs: _lazy.call(function, args, kwargs))
_twin_in("pullback.transforms.solvers", "scipy.integrate.odeint")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:
    __getattr__ = names_later(globals(), {
        "pullback.devices.device_put": ("DeviceArray", "device_put"),
        "pullback.transforms.callback": ("ShapeDtypeStruct", "callback"),
        "pullback.programs.cache_info": ("CacheInfo", "cache_info"),
        "pullback.debugging.check_grad": ("check_grad", "check_grads"),
        "pullback.debugging.find_nan": ("find_nan",),
        "pullback.debugging.printing": ("print", "print_grad"),
        "pullback.checking.verification": ("VerificationError",),
        "pullback.distributed.distribute": ("distribute",),
        "pullback.distributed.warm": ("MixedWorkersWarning", "warm"),
        "pullback.exporting.cuda": ("DeviceExport",),
        "pullback.exporting.export": ("ExportWarning", "Exported", "export"),
        "pullback.exporting.exporter": ("ExportError",),
        "pullback.transforms.autograd": (
            "const_graph", "deriv", "elementwise_grad", "grad_and_aux", "grad_named", "hessian_tensor_product",
            "hessian_vector_product", "holomorphic_grad", "make_ggnvp", "make_hvp", "make_jvp", "make_jvp_reversemode",
            "make_vjp", "multigrad_dict", "tensor_jacobian_product", "vector_jacobian_product",
        ),
        "pullback.exporting.load": ("load",),
        "pullback.exporting.loaded": ("Loaded",),
        "pullback.runtime.cuda.driver.errors": ("DeviceError", "DeviceFault", "DeviceMemoryError", "DeviceWarning"),
        "pullback.transforms.solvers": ("fixed_point", "odeint"),
        "pullback.extend": (), "pullback.optimizers": (), "pullback.random": (), "pullback.torch": (),
    })  # fmt: skip
