"""NumPy functions in, array IR out."""

from typing import TYPE_CHECKING

from pullback.ir.core.lazy_imports import later
from pullback.tracer import effects as _effects
from pullback.tracer import functions as _functions
from pullback.tracer.arrays.frame import Argument, Captured, Constant, Input, Pinned, current
from pullback.tracer.arrays.make import emit
from pullback.tracer.arrays.promotion import composition
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import TreeDef, flatten, leaf_key, unflatten
from pullback.tracer.branch_guards import Branch
from pullback.tracer.names.guards import Guard
from pullback.tracer.syntax.table import PROVIDERS
from pullback.tracer.trace import Parameters, Signature, Trace, parameters_of, signature, trace
from pullback.tracer.transforms.callback import call_outside, types_found
from pullback.tracer.transforms.grad import gradient_call
from pullback.tracer.transforms.jacobians import BoundCall, jacobian_call
from pullback.tracer.transforms.linearize import Linear, ones_like, zeros_like
from pullback.tracer.transforms.region import follow, following, guard_attribute, rebuild, rolling
from pullback.tracer.transforms.vmap import over_axes
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.ownership import OWNED, adopt

if TYPE_CHECKING:
    from pullback.tracer import statements
else:
    statements = later("pullback.tracer.statements")  # few functions have branches and loops that values decide

PROVIDERS.append(lambda: statements.register())

__all__ = [
    "Argument", "Branch", "Captured", "BoundCall", "Constant", "Guard", "Input", "Linear", "OWNED", "Parameters", "Pinned",
    "Signature", "Trace", "TraceError", "TracedArray", "TreeDef", "adopt", "call_outside", "composition", "current", "emit",
    "flatten", "follow", "following", "gradient_call", "guard_attribute", "implements", "jacobian_call", "leaf_key",
    "ones_like", "over_axes", "parameters_of", "rebuild", "register_method", "rolling", "signature", "trace", "twin",
    "types_found", "unflatten", "user_loc", "zeros_like",
]  # fmt: skip
del _effects, _functions
