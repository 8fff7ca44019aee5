"""The bounds of the sweep over derivatives, written: of each elementwise op by column (the value; the first derivatives; the
second), for both formats and modes; of matrices by order.

The unit is the one of derivative_sweep: u (|f| + sum |x f'|) of values, and so on. A bound above ``WIDE`` has its reason in
``REASONS``, which docs/math.md prints.
"""

from __future__ import annotations

WIDE = 16
INF = float("inf")
"""The bound of a rule that is being mended."""
AWAITED: tuple[str, ...] = ()
BOUNDS: dict[str, tuple[float, ...]] = {
    "abs": (1, 1, 1),
    "neg": (1, 1, 1),
    "cast": (1, 1, 1),
    "sign": (1, 1, 1),
    "floor": (1, 1, 1),
    "ceil": (1, 1, 1),
    "trunc": (1, 1, 1),
    "rint": (1, 1, 1),
    "exp": (3, 3, 3),
    "exp2": (3, 2, 3),
    "expm1": (2, 3, 3),
    "log": (2, 1, 1),
    "log2": (1, 2, 1),
    "log10": (1, 2, 2),
    "log1p": (2, 2, 4),
    "sqrt": (1, 2, 3),
    "cbrt": (1, 3, 3),
    "sin": (1, 1, 1),
    "cos": (1, 1, 1),
    "tan": (1, 2, 2),
    "asin": (1, 3, 4),
    "acos": (2, 3, 4),
    "atan": (2, 2, 2),
    "sinh": (2, 3, 2),
    "cosh": (3, 2, 3),
    "tanh": (2, 2, 3),
    "asinh": (2, 2, 4),
    "acosh": (2, 2, 2),
    "atanh": (2, 3, 3),
    "erf": (2, 3, 2),
    "erfc": (3, 3, 3),
    "expit": (3, 2, 2),
    "gammaln": (3, 2, 2),
    "digamma": (2, 4, 2),
    "polygamma": (2, 2, 3),
    "gamma": (4, 2, 2),
    "gammasgn": (1, 1, 1),
    "logit": (2, 3, 1),
    "ndtr": (3, 1, 2),
    "log_ndtr": (2, 6, 8),
    "ndtri": (2, 2, 3),
    "ndtri_exp": (2**13, 2**13, 2**13),
    "erfinv": (2, 3, 3),
    "erfcinv": (2, 2, 3),
    "erfcx": (6, 6, 8),
    "erfi": (24, 4, 2),
    "dawsn": (24, 64, 12),
    "exp1": (6, 2, 1),
    "expi": (6, 2, 2),
    "expn": (8, 6, 2),
    "exprel": (3, 6, 12),
    "sici_si": (3, 2, 2),
    "sici_ci": (8, 2, 2),
    "shichi_shi": (2, 1, 3),
    "shichi_chi": (3, 2, 2),
    "fresnel_s": (2, 1, 2),
    "fresnel_c": (2, 1, 2),
    "spence": (16, 3, 6),
    "wrightomega": (3, 4, 6),
    "zetac": (2**18, 2**21, 2**23),
    "riemann_zeta": (12, 2**21, 2**23),
    "j0": (4, 4, 6),
    "j1": (4, 8, 6),
    "y0": (12, 6, 24),
    "y1": (4, 24, 6),
    "i0": (8, 4, 16),
    "i1": (4, 16, 6),
    "i0e": (6, 96, 2**11),
    "i1e": (12, 192, 2**11),
    "k0": (8, 2, 2),
    "k1": (2, 2, 1),
    "k0e": (8, 32, 512),
    "k1e": (4, 32, 512),
    "airy_ai": (96, 48, 96),
    "airy_aip": (48, 96, 192),
    "airy_bi": (4, 4, 4),
    "airy_bip": (24, 8, 24),
    "ber": (2**21, 2**20, 2**16),
    "bei": (2**17, 2**19, 2**21),
    "berp": (2**20, 2**17, 2**19),
    "beip": (2**19, 2**21, 2**20),
    "ker": (2**20, 2**20, 2**21),
    "kei": (2**20, 2**22, 2**20),
    "kerp": (2**20, 2**21, 2**22),
    "keip": (2**20, 2**20, 2**20),
    "ellipk": (3, 8, 12),
    "ellipkm1": (3, 16, 12),
    "ellipe": (6, 12, 24),
    "add": (1, 1, 1, 1, 1, 1),
    "sub": (1, 1, 1, 1, 1, 1),
    "mul": (1, 1, 1, 1, 1, 1),
    "div": (1, 1, 1, 1, 1, 1),
    "mod": (1, 1, 1, 1, 1, 1),
    "fmod": (1, 1, 1, 1, 1, 1),
    "floordiv": (1, 1, 1, 1, 1, 1),
    "copysign": (1, 1, 1, 1, 1, 1),
    "maximum": (1, 1, 1, 1, 1, 1),
    "minimum": (1, 1, 1, 1, 1, 1),
    "fmax": (1, 1, 1, 1, 1, 1),
    "fmin": (1, 1, 1, 1, 1, 1),
    "pow": (2, 2, 3, 3, 3, 6),
    "logaddexp": (2, 2, 2, 2, 2, 2),
    "hypot": (2, 2, 2, 3, 2, 3),
    "atan2": (2, 2, 2, 2, 3, 2),
    "beta": (32, 32, 32, 24, 2**54, 24),
    "betaln": (2**20, 2, 2, 2, 2, 2),
    "binom": (48, 16, 48, 12, 24, 48),
    "poch": (512, 192, 512, 192, 256, 512),
    "owens_t": (192, 2, 3, 2, 2, 4),
    "zeta": (1, 1, 1, 1, 48, 8),
    "gammainc": (12, 1, 3, 1, 1, 2),
    "gammaincc": (24, 1, 3, 1, 1, 4),
    "gammaincinv": (6, 2**11, 16, 2**21, 2**13, 24),
    "gammainccinv": (16, 2**11, 16, 2**22, 2**14, 24),
    "stdtr": (2**17, 1, 6, 2**42, 1, 6),
    "stdtrit": (16, 2**19, 16, 2**23, 2**20, 24),
    "jv": (96, 2**15, 256, 2**23, 2**14, 96),
    "yv": (96, 2**11, 48, 2**20, 2**12, 48),
    "iv": (2, 2**13, 3, 2**21, 2**15, 3),
    "ive": (256, 2**19, 2**11, 2**26, 2**21, 2**15),
    "kv": (4, 2**14, 3, 2**16, 2**15, 3),
    "kve": (64, 2**14, 16, 2**20, 2**14, 512),
    "struve": (1024, 2**13, 2**11, 2**21, 2**14, 2**14),
    "modstruve": (512, 2**15, 512, 2**21, 2**15, 512),
    "hyp0f1": (16, 2**17, 16, 2**27, 2**14, 8),
    "ellipkinc": (3, 2, 2**15, 3, 4, 2**29),
    "ellipeinc": (3, 3, 2**17, 2, 2, 2**37),
    "ellipj_sn": (3, 4, 2**13, 96, 2**14, 2**32),
    "ellipj_cn": (3, 32, 2**14, 8, 2**13, 2**27),
    "ellipj_dn": (48, 2, 2**11, 24, 2**11, 2**26),
    "ellipj_ph": (2, 48, 2**19, 3, 2**11, 2**39),
    "clip": (1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    "betainc": (2**17, 1, 1, 3, 2**14, 1, 1, 1, 1, 6),
    "betaincc": (1, 1, 1, 2, 1, 1, 1, 1, 1, 6),
    "betaincinv": (24, 512, 1024, 32, 2**17, 2**17, 2**11, 2**16, 2**13, 64),
    "betainccinv": (48, 192, 192, 32, 2**14, 2**15, 1024, 2**15, 2**11, 128),
    "hyp1f1": (16, 2**15, 2**14, 6, 2**27, 2**20, 1024, 2**22, 2**12, 3),
    "hyperu": (2**20, 2**34, 2**36, 2**21, 2**42, 2**47, 2**27, 2**48, 2**27, 2**23),
    "hyp2f1": (3, 2**13, 2**12, 2**12, 2, 2**24, 2**20, 2**21, 512, 2**22, 2**20, 2**12, 2**20, 512, 2),
}
REASONS: dict[str, str] = {
    "poch": (
        "the value is SciPy's own and has that error, which the derivatives share; beyond 2^100 and 2^-100, to where "
        "points go, it is infinite, NaN or wrong; left out: second derivatives where a is below 2^-20, whose parts "
        "like 1 / a^2 cancel"
    ),
    "binom": (
        "the value is SciPy's own and has that error, which the derivatives share; beyond 2^100 and 2^-100, to where "
        "points go, it is infinite, NaN or wrong"
    ),
    "betaln": (
        "the value is SciPy's own and has that error; beyond 2^100 and 2^-100, to where points go, it is infinite, NaN or wrong"
    ),
    "beta": (
        "SciPy's value has that error at small arguments and none of its digits beyond 2^100 and 2^-100, to where "
        "points go; the mixed derivative, which is of the size of 1 where p and q are small, is a sum of parts like 1 "
        "/ p^3 and has no digits there"
    ),
    "hypot": "left out: second derivatives where the value is subnormal, whose digits they have",
    "pow": (
        "left out: second derivatives where the base or the value is subnormal: they have the digits of that, and "
        "parts of the mixed one overflow"
    ),
    "keip": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have "
        "ten digits; left out: arguments below four times the square root of the smallest normal number, where "
        "SciPy's keip is off as their square underflows"
    ),
    "kerp": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have "
        "ten digits; left out: arguments below four times the square root of the smallest normal number, where "
        "SciPy's keip is off as their square underflows"
    ),
    "kei": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have "
        "ten digits; left out: arguments below four times the square root of the smallest normal number, where "
        "SciPy's keip is off as their square underflows"
    ),
    "ker": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have "
        "ten digits; left out: arguments below four times the square root of the smallest normal number, where "
        "SciPy's keip is off as their square underflows"
    ),
    "k1e": "between 8 and 30 digits cancel at order 2",
    "ndtri_exp": "SciPy's value has that error from -10^4 to -10^9",
    "erfi": "the value is SciPy's own and has that error, which the derivatives share",
    "dawsn": ("the value is SciPy's and has that error near 0; between 1 and 30 a hypergeometric function has it"),
    "expn": "left out: from 708 on the value is subnormal and SciPy's is 0",
    "zetac": (
        "below 1/2 derivatives are differences of the function in float64; SciPy's float32 values are off where they "
        "are subnormal"
    ),
    "riemann_zeta": "below 1/2 derivatives are differences of the function in float64",
    "j0": "left out: SciPy's functions of order 1 have fewer digits at subnormal numbers",
    "j1": "left out: SciPy's functions of order 1 have fewer digits at subnormal numbers",
    "y0": "near the zeros of the function the values are SciPy's and have that error",
    "y1": "near the zeros of the function the values are SciPy's and have that error",
    "k0e": "from 2 on one to three digits cancel at orders 1 and 2: the derivative is a difference of two functions",
    "i0e": "between 8 and 30 two or three digits cancel at orders 1 and 2",
    "i1e": "between 8 and 30 two or three digits cancel at orders 1 and 2",
    "airy_ai": "the value is SciPy's own and has that error, which the derivatives share",
    "airy_aip": "the value is SciPy's own and has that error, which the derivatives share",
    "airy_bip": "the value is SciPy's own and has that error, which the derivatives share",
    "ber": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have ten digits"
    ),
    "bei": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have ten digits"
    ),
    "berp": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have ten digits"
    ),
    "beip": (
        "the value is SciPy's own and has that error, which the derivatives share: near 10 Kelvin's functions have ten digits"
    ),
    "ellipkm1": "left out: near the smallest normal number second derivatives overflow and may be NaN",
    "ellipe": "near m = -1 two terms cancel by some bits",
    "owens_t": (
        "left out: arguments beyond 2^20, whose squares overflow in float32; the value near h = 0 has few digits in the reference"
    ),
    "zeta": "the second derivative by x and q differentiates the sum for the derivative by x",
    "gammainc": (
        "by a: differences of the function in float64, up to 2^-36 off besides the bound, which in the tails is all of "
        "it; left out: arguments below 2^-20"
    ),
    "gammaincc": (
        "by a: differences of the function in float64, up to 2^-36 off besides the bound, which in the tails is all of "
        "it; left out: arguments below 2^-20"
    ),
    "gammaincinv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "gammainccinv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "stdtr": (
        "by the degrees of freedom: differences of the function in float64, up to 2^-36 off besides the bound; left "
        "out: less than 2^-6 degrees; SciPy's float32 values have that error"
    ),
    "stdtrit": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "jv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "yv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "iv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "ive": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; between 8 and 30 digits cancel by x"
    ),
    "kv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "kve": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; between 8 and 30 digits cancel by x"
    ),
    "struve": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "modstruve": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "hyp0f1": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "ellipkinc": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; left out: |phi| below 2^-8, where those have no digits"
    ),
    "ellipeinc": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; left out: |phi| below 2^-8, where those have no digits"
    ),
    "ellipj_sn": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; left out: |u| below 2^-8, where those have no digits"
    ),
    "ellipj_cn": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; left out: |u| below 2^-8, where those have no digits"
    ),
    "ellipj_dn": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; left out: |u| below 2^-8, where those have no digits"
    ),
    "ellipj_ph": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven; left out: |u| below 2^-8, where those have no digits"
    ),
    "betainc": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven, and up to 2^-36 off besides the bound; SciPy's float32 values have that error"
    ),
    "betaincc": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven, and up to 2^-36 off besides the bound"
    ),
    "betaincinv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "betainccinv": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "hyp1f1": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "hyperu": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
    "hyp2f1": (
        "derivatives by parameters are differences of the eighth order of the function in float64: about ten digits, at "
        "the second order seven"
    ),
}
"""Why the bound of a row is above ``WIDE``, or why it leaves points out."""
MATRICES: dict[str, tuple[int, int, int]] = {
    "solve": (2, 2, 2),
    "triangular_solve": (2, 2, 2),
    "banded_solve": (2, 2, 2),
    "cholesky": (2, 2, 2),
    "lu": (2, 2, 3),
    "qr": (2, 2, 512),
    "eigh": (4, 4, 4),
    "svd": (8, 4, 4),
    "eig": (4, 4, 4),
    "expm": (32, 4, 4),
    "logm": (4, 4, 8),
    "sqrtm": (4, 8, 16),
    "det": (4, 4, 12),
    "slogdet": (2, 2, 2),
    "pinv": (6, 12, 24),
    "sylvester": (2, 6, 4),
    "unitary": (8, 12, 24),
}
