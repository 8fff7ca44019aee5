"""Text of docs/math.md for each elementary function: the method with its source, and the special values."""

from __future__ import annotations

CODY = "Cody and Waite, Software Manual for the Elementary Functions, 1980"
MULLER = "Muller, Elementary Functions, 2016"
EXP = f"x = k log(2) + r in two parts ({CODY}), a minimax polynomial for exp(r), times 2^k"
EXPM1 = "as exp, with a minimax polynomial for expm1(r)"
LOG = f"x = 2^k m, m in [3/4, 3/2); 2 atanh(s) of s = f / (2 + f), f = m - 1, by a minimax polynomial ({MULLER}, 11.4)"
TRIG = (
    f"x = k pi/2 + r in three parts by fused operations ({CODY}), from 2^30 (float32: 2^16) on by Payne and Hanek, SIGNUM "
    "Newsletter 18, 1983, in integer vectors; minimax polynomials for sin(r) and cos(r)"
)
METHODS = {
    "exp": EXP,
    "exp2": "x = k + f, which is exact; exp(f log(2)) with f log(2) as a sum of two",
    "expm1": EXPM1,
    "tanh": "-t / (t + 2), t = expm1(-2 abs(x)), where abs(tanh(x)) < 1/2, else 1 - 2 e / (1 + e), e = exp(-2 abs(x))",
    "sinh": "2 (t + t / (4 t + 1)), t = expm1(abs(x)) / 4 as a sum of two",
    "cosh": "2 h + 1 / (8 h), h = exp(abs(x)) / 4",
    "expit": "y = e / (1 + e), e = exp(-abs(x)) as a sum of two, or 1 - y",
    "sech2": "p (2 - p), p = 1 - abs(tanh(x)) by the quotient of tanh; equal to 1 - tanh(x)^2, its derivative",
    "tanh_tail": "1 - abs(tanh(x)) by the quotient of tanh",
    "logistic_pdf": "y (1 - y), y = expit(x) as above; the derivative of expit",
    "logistic_logpdf": "-abs(x) - 2 log(1 + exp(-abs(x))); the logarithm of logistic_pdf",
    "log": LOG,
    "log2": "as log, times 1 / log(2) as a sum of two",
    "log10": "as log, times 1 / log(10) as a sum of two",
    "log1p": "as log, f = 2^-k x + (2^-k - 1) from x itself",
    "logaddexp": "max + log1p(exp(-abs(x - y)))",
    "asinh": "log1p(a + a^2 / (1 + sqrt(a^2 + 1))), a = abs(x); log(2 a) if large",
    "acosh": "log1p(t + sqrt(2 t + t^2)) with the argument as a sum of two, t = x - 1; log(2 x) if large",
    "atanh": "log1p(2 a / (1 - a)) / 2, a = abs(x)",
    "sin": TRIG,
    "cos": "as sin",
    "tan": "sin / cos or -cos / sin as sums of two, the reduction of sin",
    "asin": f"a minimax polynomial to 1/2; beyond, pi/2 - 2 asin(sqrt((1 - abs(x)) / 2)) ({MULLER}, 10.2; fdlibm)",
    "acos": "as asin",
    "atan": "a minimax polynomial on [0, 1]; beyond, pi/2 - atan(1 / x)",
    "atan2": "atan of the smaller over the greater, mapped to its octant",
    "erf": "piecewise minimax polynomials, with a table look-up in each lane",
    "erfc": "exp(-x^2) t g(1 - 2 t), t = c / (c + x) (Shepherd and Laframboise, Math. Comp. 36, 1981), t g as a sum of two",
    "ndtr": "as erfc, with exp(-x^2 / 2)",
    "log_ndtr": "log(t g) - x^2 / 2 with the t g of ndtr, or log1p(-ndtr(-x)) above 0",
    "gauss": "exp(-x^2), the square as a sum of two",
    "normal_pdf": "exp(-x^2 / 2) / sqrt(2 pi), square and factor as sums of two",
    "inverse_mills": (
        "normal_pdf / ndtr, below 0 by the factors of both without the exponential, which cancels; the derivative of "
        "log_ndtr"
    ),
    "mills_gap": "x + inverse_mills, below 0 as a multiple of ierfcx / erfcx, a polynomial in c / (c + abs(x))",
    "erfcx": (
        "exp(x^2) erfc(x): the t g of erfc, from 27 (float32: 10) on an asymptotic series; below 0, 2 exp(x^2) minus "
        "the value at -x"
    ),
    "ierfcx": "exp(x^2) times the integral of erfc (DLMF 7.18): its quotient with erfcx, a polynomial in c / (c + x), times that",
    "logit": "log(p / (1 - p)), the quotient as a sum of two",
    "erfinv": (
        "x g(-log(1 - x^2)), g piecewise (Giles, GPU Computing Gems, 2011); at the ends r - d(r), d piecewise, r^2 = "
        "-log(erfc)"
    ),
    "erfcinv": "minus erfinv of x - 1, a sum of two",
    "ndtri": "as erfinv of 2 p - 1, times sqrt(2), both as sums of two",
    "gammaln": (
        "piecewise polynomials to 12, Stirling's series from there (Abramowitz and Stegun, 6.1.41); log(abs(sin(pi x))) and the "
        "reflection below 0"
    ),
    "digamma": "as gammaln, by the derivatives of its parts (Abramowitz and Stegun, 6.3.18)",
    "digamma_step": "digamma(x + d) - digamma(x): ten differences of reciprocals, then of the series (DLMF 5.11.2)",
    "trigamma_step": "trigamma(x + d) - trigamma(x), likewise",
    "pow": f"exp(y log(x)), logarithm and product as sums of two (Dekker, 1971; {MULLER}, 11.5)",
    "cbrt": "a polynomial for the inverse cube root, a Halley step, a Newton step with an exact residual",
    "hypot": "sqrt(x^2 + y^2), scaled by powers of two where squares overflow or underflow",
}
ODD = "±0: ±0"
SPECIAL = {
    "exp": "-inf: 0; inf: inf",
    "exp2": "-inf: 0; inf: inf; whole numbers: exact powers",
    "expm1": f"{ODD}; -inf: -1; inf: inf",
    "tanh": f"{ODD}; ±inf: ±1",
    "sinh": f"{ODD}; ±inf: ±inf",
    "cosh": "±0: 1; ±inf: inf",
    "expit": "-inf: 0; inf: 1; small values are not flushed to zero",
    "sech2": "±0: 1; ±inf: 0; small values are not flushed to zero",
    "tanh_tail": "±0: 1; ±inf: 0; small values are not flushed to zero",
    "logistic_pdf": "±0: 1/4; ±inf: 0; small values are not flushed to zero",
    "logistic_logpdf": "±inf: -inf",
    "log": "±0: -inf; inf: inf; below 0: NaN; 1: +0",
    "log2": "as log; powers of two: exact",
    "log10": "as log; powers of ten: exact",
    "log1p": f"{ODD}; -1: -inf; inf: inf; below -1: NaN",
    "logaddexp": "inf with anything but NaN: inf; -inf with y: y, also for y = -inf",
    "asinh": f"{ODD}; ±inf: ±inf",
    "acosh": "1: +0; inf: inf; below 1: NaN",
    "atanh": f"{ODD}; ±1: ±inf; beyond: NaN",
    "sin": f"{ODD}; ±inf: NaN",
    "cos": "±0: 1; ±inf: NaN",
    "tan": f"{ODD}; ±inf: NaN",
    "asin": f"{ODD}; beyond ±1: NaN",
    "acos": "1: +0; beyond ±1: NaN",
    "atan": f"{ODD}; ±inf: ±pi/2",
    "atan2": "as C99 F.10.1.4, zeros and infinities of either sign",
    "erf": f"{ODD}; ±inf: ±1",
    "erfc": "-inf: 2; inf: 0",
    "ndtr": "-inf: 0; inf: 1",
    "log_ndtr": "-inf: -inf; inf: -0",
    "gauss": "±0: 1; ±inf: 0; small values are not flushed to zero",
    "normal_pdf": "±inf: 0; small values are not flushed to zero",
    "inverse_mills": "-inf: inf; inf: 0",
    "mills_gap": "-inf: 0; inf: inf",
    "erfcx": "±0: 1; -inf: inf; inf: 0",
    "ierfcx": "-inf: inf; inf: 0",
    "logit": "0: -inf; 1: inf; 1/2: +0; beyond [0, 1]: NaN",
    "erfinv": "±0: +0; ±1: ±inf; beyond: NaN",
    "erfcinv": "0: inf; 1: -0; 2: -inf; beyond [0, 2]: NaN",
    "ndtri": "0: -inf; 1: inf; 1/2: +0; beyond [0, 1]: NaN",
    "gammaln": "0 and negative whole numbers: inf; ±inf: ±inf; 1 and 2: +0",
    "digamma": "±0: ∓inf; negative whole numbers and -inf: NaN; inf: inf",
    "digamma_step": "where x or x + d is not above 0, the difference of digamma",
    "trigamma_step": "where x or x + d is not above 0, the difference of trigamma",
    "pow": "as C99 F.10.4.4: pow(x, 0) and pow(1, y) are 1, even of NaN; a negative x has only whole powers",
    "cbrt": f"{ODD}; ±inf: ±inf; cubes of small integers: exact",
    "hypot": "an infinity: inf, even with NaN",
}
