"""The error function and its complement: erf, erfc.

erf(x) = 1 - exp(-q(x)) with q = -log(erfc), smooth and nearly quadratic, as one polynomial on the whole
range: where its terms cancel, exp(-q) is small against 1. Through expm1 the result keeps its relative
accuracy down to 0. erfc(x) = exp(-x**2) t g(1 - 2 t) with t = c / (c + x), in the manner of Shepherd and
Laframboise, Chebyshev approximation of (1 + 2x) exp(x**2) erfc(x), Math. Comp. 36 (1981). The coefficients
are our own minimax fits.
"""

from __future__ import annotations

from pullback.codegen.math_basis import Coefficients, clamp, number, polynomial
from pullback.codegen.math_exp import EXP_RANGE, exp_of_sum, expm1_held
from pullback.ir.builder import Builder
from pullback.ir.structure import Value

# (-log(erfc(x)) / x - 2 / sqrt(pi)) / x on [0, 5.93] and [0, 3.93], least error relative to erf(x):
# 2**-56.7 and 2**-30.6.
ERF: Coefficients = {
    "f64": (
        0.6366197723675828, 0.10277260330181973, -0.01912844700563446, -0.00020919468900850976,
        0.0016962063473284915, -0.0005901253797206156, 2.587804284442886e-05, 6.449321710739908e-05,
        -2.9726551996262396e-05, 3.4108764292757124e-06, 2.831022463569569e-06, -1.737792065709123e-06,
        3.336059503872e-07, 1.388210365860303e-07, -1.4255023803878482e-07, 6.603982711182094e-08,
        -2.105830809269298e-08, 5.0214714030279795e-09, -9.12849831391494e-10, 1.2553040662835355e-10,
        -1.2686778721099116e-11, 8.90339534892733e-13, -3.877840002531359e-14, 7.894278822250167e-16,
    ),
    "f32": (
        0.6366198, 0.10277161, -0.01911927, -0.0002492885, 0.001794307, -0.00073676865, 0.00016573713,
        -2.094344e-05, 1.1536666e-06,
    ),
}  # fmt: skip
# Beyond these erf is 1 in round to nearest.
ERF_HIGH = {"f64": 5.93, "f32": 3.93}
# 2 / sqrt(pi) as a sum of two.
SLOPE = {"f64": (1.1283791670955126, 1.533545961316588e-17), "f32": (1.128379225730896, -5.8635382771399236e-08)}

# exp(x**2) erfc(x) / t in 1 - 2 t for t = c / (c + x), least relative error 2**-54.0 and 2**-26.9.
ERFC: Coefficients = {
    "f64": (
        0.27399891525012277, -0.24413718227022052, 0.1933021755663109, -0.1352134578283061,
        0.08271289696944716, -0.043502734310084216, 0.01909537872821902, -0.006592513333330201,
        0.0015280139060225724, -7.023973311975981e-05, -0.00011376312906356088, 4.420330073837512e-05,
        -9.089295414069254e-07, -4.7155667823039885e-06, 1.173872769847579e-06, 3.5682825319138526e-07,
        -2.1184410865765933e-07, -1.9956690435984555e-08, 3.1165849835172664e-08, 1.0383084289275776e-09,
        -3.826425435774612e-09, -2.3224516938485787e-10, 2.0691824993647127e-10,
    ),
    "f32": (
        0.3580023, -0.29446483, 0.1967427, -0.1034887, 0.039843485, -0.008946374, -0.00040989683,
        0.0010260383, -0.00016036823, -0.0001079155,
    ),
}  # fmt: skip
ERFC_CENTRE = {"f64": 4.0, "f32": 3.0}
# (2 x - 2 / (sqrt(pi) exp(x**2) erfc(x))) / t in t, to a few percent.
ERFC_SLOPE: Coefficients = {"f64": (-0.275, -0.014, -0.791), "f32": (-0.337, -0.269, -0.547)}
# Beyond these erfc is 0 in round to nearest.
ERFC_HIGH = {"f64": 27.3, "f32": 10.1}


def erf(b: Builder, x: Value) -> Value:
    name = x.type.dtype.name
    size = clamp(b, b.abs(x), None, ERF_HIGH[name])
    slope, slope_low = (number(b, x, part) for part in SLOPE[name])
    inner = b.fma(size, polynomial(b, size, ERF), slope_low)
    q = b.fma(size, slope, b.mul(size, inner))
    return b.copysign(b.neg(expm1_held(b, b.neg(q))), x)


def erfc(b: Builder, x: Value) -> Value:
    name = x.type.dtype.name
    size = clamp(b, b.abs(x), None, ERFC_HIGH[name])
    centre, two = number(b, x, ERFC_CENTRE[name]), number(b, x, 2.0)
    total = b.add(centre, size)
    total_low = b.sub(size, b.sub(total, centre))
    t = b.div(centre, total)
    scaled = b.mul(t, polynomial(b, b.fma(b.neg(two), t, number(b, x, 1.0)), ERFC, steps=2))
    # t belongs to an argument that differs from size by distance / t, for which the derivative makes up.
    distance = b.fma(t, total_low, b.fma(t, total, b.neg(centre)))
    correction = b.mul(distance, polynomial(b, t, ERFC_SLOPE))
    square = b.mul(size, size)
    missing = b.fma(size, size, b.neg(square))
    square = clamp(b, square, None, -EXP_RANGE[name][0])
    y = exp_of_sum(b, b.neg(square), b.sub(correction, missing), scaled)
    return b.select(b.lt(x, number(b, x, 0.0)), b.sub(two, y), y)
