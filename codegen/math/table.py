"""The elementary functions of generated code: ``MATH`` maps the name of an op to the recipe that builds it.

A recipe takes a builder and rank-0 values of float64 or float32 and appends straight-line code that serves
vectors of any width on any target. They cover all arguments, and read no memory but constant tables. Special
values follow C99 and NumPy, subnormal numbers are kept, and no result depends on the lane it is computed in.
docs/math.md lists methods and errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from pullback.codegen.math import (
    error_function as math_erf,
)
from pullback.codegen.math import (
    exponential as math_exp,
)
from pullback.codegen.math import (
    gamma as math_gamma,
)
from pullback.codegen.math import (
    inverse_error_function as math_inverse,
)
from pullback.codegen.math import (
    logarithm as math_log,
)
from pullback.codegen.math import (
    power as math_power,
)
from pullback.codegen.math import (
    trigonometric as math_trig,
)
from pullback.codegen.math.basis import Recipe

MATH: Mapping[str, Recipe] = {
    "exp": math_exp.exp,
    "exp2": math_exp.exp2,
    "expm1": math_exp.expm1,
    "tanh": math_exp.tanh,
    "sinh": math_exp.sinh,
    "cosh": math_exp.cosh,
    "expit": math_exp.expit,
    "sech2": math_exp.sech2,
    "tanh_tail": math_exp.tanh_tail,
    "logistic_pdf": math_exp.logistic_pdf,
    "log": math_log.log,
    "log2": math_log.log2,
    "log10": math_log.log10,
    "log1p": math_log.log1p,
    "logaddexp": math_log.logaddexp,
    "logistic_logpdf": math_log.logistic_logpdf,
    "logit": math_log.logit,
    "asinh": math_log.asinh,
    "acosh": math_log.acosh,
    "atanh": math_log.atanh,
    "sin": math_trig.sin,
    "cos": math_trig.cos,
    "tan": math_trig.tan,
    "asin": math_trig.asin,
    "acos": math_trig.acos,
    "atan": math_trig.atan,
    "atan2": math_trig.atan2,
    "erf": math_erf.erf,
    "erfc": math_erf.erfc,
    "ndtr": math_erf.ndtr,
    "log_ndtr": math_erf.log_ndtr,
    "gauss": math_erf.gauss,
    "normal_pdf": math_erf.normal_pdf,
    "inverse_mills": math_erf.inverse_mills,
    "mills_gap": math_erf.mills_gap,
    "erfcx": math_erf.erfcx,
    "ierfcx": math_erf.ierfcx,
    "erfinv": math_inverse.erfinv,
    "erfcinv": math_inverse.erfcinv,
    "ndtri": math_inverse.ndtri,
    "gammaln": math_gamma.gammaln,
    "digamma": math_gamma.digamma,
    "digamma_step": math_gamma.digamma_step,
    "trigamma_step": math_gamma.trigamma_step,
    "pow": math_power.pow,
    "cbrt": math_power.cbrt,
    "hypot": math_power.hypot,
}
