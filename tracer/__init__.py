"""NumPy functions in, array IR out."""

from pullback.tracer import functions as _functions
from pullback.tracer.array import emit
from pullback.tracer.batching import over_axes
from pullback.tracer.errors import TraceError, user_loc
from pullback.tracer.frame import Argument, Captured, Constant, Input, Pinned, current
from pullback.tracer.guards import Guard
from pullback.tracer.hosted import call_outside, types_found
from pullback.tracer.jacobians import Chosen, jacobian_call
from pullback.tracer.linear import Linear, ones_like, zeros_like
from pullback.tracer.outcomes import Branch
from pullback.tracer.ownership import OWNED, adopt
from pullback.tracer.promotion import composition
from pullback.tracer.region import follow, following, guard_attribute, rebuild
from pullback.tracer.tables import implements, register_method
from pullback.tracer.trace import Parameters, Signature, Trace, parameters_of, signature, trace
from pullback.tracer.traced import TracedArray
from pullback.tracer.transform import gradient_call
from pullback.tracer.tree import TreeDef, flatten, leaf_key, unflatten
from pullback.tracer.twins import twin

__all__ = [
    "Argument", "Branch", "Captured", "Chosen", "Constant", "Guard", "Input", "Linear", "OWNED", "Parameters", "Pinned",
    "Signature", "Trace", "TraceError", "TracedArray", "TreeDef", "adopt", "call_outside", "composition", "current", "emit",
    "flatten", "follow", "following", "gradient_call", "guard_attribute", "implements", "jacobian_call", "leaf_key",
    "ones_like", "over_axes", "parameters_of", "rebuild", "register_method", "signature", "trace", "twin", "types_found",
    "unflatten", "user_loc", "zeros_like",
]  # fmt: skip
del _functions
