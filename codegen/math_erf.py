"""The error function, its complement, and the normal distribution function: erf, erfc, ndtr.

erf is piecewise a polynomial about the nearest multiple of a step, whose value there is held as a sum of two. erfc(x) =
exp(-x**2) t g(1 - 2 t) and ndtr(-x) = exp(-x**2 / 2) t g(1 - 2 t) with t = c / (c + x), in the manner of Shepherd and
Laframboise, Chebyshev approximation of (1 + 2x) exp(x**2) erfc(x), Math. Comp. 36 (1981); t g is held as a sum of two. The
coefficients are our own fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pullback.codegen.math_basis import Coefficients, clamp, number, polynomial, two_sum
from pullback.codegen.math_exp import exp_parts
from pullback.codegen.math_log import join, log_tail, split_positive
from pullback.codegen.math_pieces import Pieces, looked_up, nearest_multiple, piecewise
from pullback.ir.builder import Builder
from pullback.ir.structure import Value

# By pieces about the multiples c of ERF_STEP: erf(c) and (erf(c + t) - erf(c)) / t at 0, each as a sum of two, then the
# coefficients of t, t**2, ... in the latter. Interpolated at Chebyshev's points; greatest error relative to erf 2**-56.4 and
# 2**-28.6.
ERF: Pieces = {
    "f64": (
        (0.0, 0.7402369841174793, 0.9757977205900914, 0.9992773915094418, 0.999993449849224, 0.9999999824694816,
         0.9999999999863626, 0.9999999999999969),
        (0.0, -3.311612102022244e-17, -5.157324699356845e-17, 2.9806133187196614e-17, -3.361347945844607e-17,
         -3.442233539654997e-17, 4.567551376708329e-17, 5.4140769717187634e-17),
        (1.1283791670955126, 0.5979623254177844, 0.08898772635666957, 0.0037189807023429683, 4.364708704085379e-05,
         1.438547246811081e-07, 1.3314673504269023e-10, 3.460783553055325e-14),
        (1.5335302279167395e-17, -2.8082952903666094e-17, -3.0678248805082205e-18, 6.395548532685724e-20,
         1.0226674347648983e-21, 1.0356650003944494e-23, 2.7024003221720373e-28, -8.133263132631322e-32),
        (2.022571269416424e-19, -0.4765012280672969, -0.14182418888094211, -0.00889068824153866, -0.0001391250899427215,
         -5.731711686512753e-07, -6.366078269232458e-10, -1.9304683251603515e-13),
        (-0.3761263890318376, 0.05382050227148818, 0.12102562523377376, 0.012929874150838629, 0.0002810917871146645,
         1.4745343418334558e-06, 1.984805203362513e-09, 7.063569657102873e-13),
        (3.6590983613134535e-15, 0.13738963631530576, -0.049167565481186185, -0.012491677448744168, -0.00040161500573306156,
         -2.746491827910641e-06, -4.532722330146259e-09, -1.905724793931991e-12),
        (0.11283791670938836, -0.05993909725670508, -0.00496336457534057, 0.008066204315015955, 0.0004277315961753693,
         3.934861048550682e-06, 8.073389887640481e-09, 4.04024100065293e-12),
        (4.39305821764137e-12, -0.020715913642346397, 0.015748138225943748, -0.0030966425772353807, -0.0003473674860779073,
         -4.493589508729482e-06, -1.1658239194714815e-08, -7.00412877590957e-12),
        (-0.02686617072305314, 0.0189877832441146, -0.00598927378450837, 0.000194592642461315, 0.00021451167572495436,
         4.1785985029447144e-06, 1.4003752172995818e-08, 1.020088753245446e-11),
        (9.572416299572103e-10, 0.0006564019302469059, -0.0009882497869931825, 0.0005472667585937883, -9.650310153043858e-05,
         -3.1993638390587e-06, -1.4240665256335303e-08, -1.2724608265472533e-11),
        (0.005223969207416288, -0.0038083064998422657, 0.0015145868124960017, -0.0003285730410618196, 2.664576015196829e-05,
         2.020265258024608e-06, 1.2407745427518629e-08, 1.3789184873627007e-11),
        (5.407771738659206e-08, 0.0004902546288036599, -0.00030708544943564285, 5.9807105930686266e-05, 1.694301453755402e-07,
         -1.041122578999287e-06, -9.33324650682694e-09, -1.3120771610431122e-11),
        (-0.0008550890691351641, 0.0005521421010688662, -0.00015886543023548843, 2.7772371577029007e-05, -4.45841039729029e-06,
         4.2362733880892766e-07, 6.08333109258996e-09, 1.1058354836420459e-11),
        (8.977437621347731e-07, -0.00014760497646789191, 8.87238985656377e-05, -2.0127212435681756e-05, 2.342922565242755e-06,
         -1.2357514969244126e-07, -3.433361938621013e-09, -8.29845102038013e-12),
        (0.0001182521830999455, -5.973973781610868e-05, 7.161766243158758e-07, 3.4742064222324783e-06, -5.201621822311346e-07,
         1.605237769481906e-08, 1.6666417045593276e-09, 5.5000866656068055e-12),
        (4.22235709912331e-06, 2.6209492559154436e-05, -1.1844379149193623e-05, 1.4681155146183988e-06, -7.256918168488682e-08,
         7.198723505841599e-09, -6.867376785558368e-10, -3.2663577665845174e-12),
        (-2.0234735680660515e-05, 4.492718567806018e-06, 2.1706972662604366e-06, -8.526202127062258e-07, 9.515809736264859e-08,
         -5.987874679794145e-09, 2.351403727922418e-10, 2.0112842171816523e-12),
        (4.1880403605466855e-06, -3.2881174636263045e-06, 8.849155565270731e-07, 7.971254516717115e-08, -2.761624326905726e-08,
         1.999766230329805e-09, -5.6419046928006196e-11, -1.0318024434069667e-12),
    ),
    "f32": (
        (0.0, 0.28459144, 0.53412306, 0.72595984, 0.8552718, 0.9316981, 0.9713021, 0.9892959, 0.9964638, 0.9989671, 0.9997337,
         0.99993944, 0.99998784, 0.99999785, 0.99999964, 0.99999994),
        (0.0, -7.3128827e-09, -2.8539004e-08, 3.696548e-09, -5.810745e-09, -1.01594075e-08, 2.0849122e-09, 1.0945671e-08,
         -2.4759975e-08, 2.1196252e-08, -2.0386718e-08, -8.653277e-10, 2.8519237e-08, 6.7398944e-09, 2.5829682e-08,
         1.4353876e-08),
        (1.1283792, 1.0558171, 0.86494714, 0.62037987, 0.38957676, 0.21418826, 0.10310163, 0.04345129, 0.016032714,
         0.005179391, 0.0014649323, 0.00036276365, 7.864973e-05, 1.4929255e-05, 2.481112e-06, 3.6101147e-07),
        (-5.8576283e-08, -4.7447106e-08, -1.5919582e-08, -1.3431237e-08, 1.2728336e-08, 5.978646e-09, 9.0459173e-10,
         -1.2382676e-09, -6.611649e-10, -1.2856162e-10, 8.966894e-12, 1.6785145e-12, 2.9150588e-12, 1.710271e-13,
         1.0617211e-13, -2.2490495e-15),
        (-3.3015336e-08, -0.27220285, -0.44598836, -0.47982505, -0.40175104, -0.27610207, -0.15948534, -0.078416, -0.033067472,
         -0.012017805, -0.0037767785, -0.0010287748, -0.0002433225, -5.0036284e-05, -8.9552495e-06, -1.3961223e-06),
        (-0.3761234, -0.30515176, -0.13500823, 0.0406136, 0.14634277, 0.16587882, 0.13010289, 0.079861365, 0.04012394,
         0.016863607, 0.0060029263, 0.0018240177, 0.00047559015, 0.000106805775, 2.0716187e-05, 3.4785323e-06),
        (-9.9108714e-05, 0.13006903, 0.18346784, 0.14423428, 0.058458727, -0.01487943, -0.047463764, -0.045923114,
         -0.030355142, -0.01555857, -0.006479368, -0.002243581, -0.0006546237, -0.00016232464, -3.4407436e-05, -6.250127e-06),
        (0.11432432, 0.07774619, 0.0028260346, -0.056341007, -0.067671634, -0.04204323, -0.0097984625, 0.009051912,
         0.012940902, 0.00937661, 0.0048971577, 0.002012041, 0.0006747971, 0.00018840622, 4.431943e-05, 8.758206e-06),
        (-0.010294965, -0.04115478, -0.04914089, -0.023780039, 0.007661837, 0.021921344, 0.01759783, 0.006743751,
         -0.0008089841, -0.0030876615, -0.0024640253, -0.0012934607, -0.00051665836, -0.00016552437, -4.3655367e-05,
         -1.0546565e-05),
    ),
}  # fmt: skip
ERF_STEP = {"f64": 0.796875, "f32": 0.2578125}
# Beyond these erf is 1 in round to nearest.
ERF_HIGH = {"f64": 5.95, "f32": 3.96}


class Tail(NamedTuple):
    """A function that falls like exp(-x**2) or exp(-x**2 / 2), for x >= 0.

    What the exponential leaves over, f(x), is t g(1 - 2 t) with t = centre / (centre + x). ``slope``: f'(x) / f(x) / t in t, to a
    few percent. The centre and the first coefficient of g have zeros enough at their ends for their differences from the sums
    that they begin to be exact.
    """

    centre: Mapping[str, float]
    polynomial: Coefficients
    slope: Coefficients


# exp(x**2) erfc(x), least relative error 2**-57.3 and 2**-27.5 up to ERFC_HIGH, beyond which erfc is 0 in round to nearest.
_ERFC: Coefficients = {
    "f64": (
        0.27371458264948134, -0.2439413343734641, 0.19324127491182952, -0.13527574632189668, 0.08284484466300225,
        -0.043642967396604525, 0.019202941397440783, -0.006655696414543747, 0.0015558938610416803, -7.844040030716268e-05,
        -0.00011302390983048335, 4.485659007221869e-05, -1.2351594918682117e-06, -4.696041695992028e-06,
        1.211983991287804e-06, 3.446205414076047e-07, -2.1464066155618111e-07, -1.7162228507472584e-08, 3.117280474614295e-08,
        2.6520897705049527e-10, -3.875330792415275e-09, -4.525315751837497e-11, 2.6555182483895397e-10,
    ),
    "f32": (
        0.35333586, -0.29207996, 0.19728622, -0.10580613, 0.042210206, -0.010362169, 6.538262e-05, 0.0010274147,
        -0.00023027888, -0.00011177552,
    ),
}  # fmt: skip
ERFC = Tail({"f64": 4.00439453125, "f32": 3.04345703125}, _ERFC, {"f64": (-0.284, 0.06, -0.891), "f32": (-0.337, -0.269, -0.547)})
ERFC_HIGH = {"f64": 27.3, "f32": 10.1}
# exp(x**2 / 2) ndtr(-x), least relative error 2**-59.1 and 2**-27.5 everywhere; beyond NDTR_HIGH ndtr(-x) is 0.
_NDTR: Coefficients = {
    "f64": (
        0.13833687151987428, -0.12298579508253854, 0.09692921081247449, -0.0673048191793659, 0.04073104993211423,
        -0.021093346835770497, 0.009048156381816042, -0.0030067395041851147, 0.0006388426304193267, 1.9611354400717103e-07,
        -5.921504828154888e-05, 1.8898700212473203e-05, 9.717987765283912e-07, -2.3871007445463254e-06,
        4.0241899117423575e-07, 2.2514849593723684e-07, -8.854165664013402e-08, -1.924667716847158e-08,
        1.4530888238226202e-08, 1.6172837318091225e-09, -2.1990465333971777e-09, -1.3841980010703504e-10,
        2.8800796776292046e-10, 9.315878800338266e-12, -2.3227099401184668e-11,
    ),
    "f32": (
        0.22261411, -0.16477108, 0.08628323, -0.027386434, 0.0016161082, 0.0024469038, -0.00054787775, -0.00028836142,
        8.362946e-05, 4.5183806e-05, -8.503461e-06, -5.5158316e-06,
    ),
}  # fmt: skip
NDTR = Tail(
    {"f64": 5.5989990234375, "f32": 3.322265625}, _NDTR, {"f64": (-0.186, -0.036, -0.56), "f32": (-0.295, -0.386, -0.133)}
)
NDTR_HIGH = {"f64": 38.6, "f32": 14.4}
# Beyond this the logarithm of f is nothing to half the square.
LOG_HIGH = {"f64": 2.0**30, "f32": 2.0**16}


def erf(b: Builder, x: Value) -> Value:
    name = x.type.dtype.name
    index, t = nearest_multiple(b, clamp(b, b.abs(x), None, ERF_HIGH[name]), ERF_STEP[name])
    value, value_low, slope = (looked_up(b, index, row, x) for row in ERF[name][:3])
    tail = b.fma(t, piecewise(b, t, index, ERF[name][3:]), value_low)
    return b.copysign(b.add(b.fma(t, slope, tail), value), x)


def left_over(b: Builder, size: Value, tail: Tail) -> tuple[Value, Value, Value]:
    """f of a finite ``size`` as a sum of two, and how far that is to grow, relative to it."""
    name = size.type.dtype.name
    centre = number(b, size, tail.centre[name])
    total = b.add(centre, size)
    total_low = b.sub(size, b.sub(total, centre))
    u = b.fma(number(b, size, -2.0), b.div(centre, total), number(b, size, 1.0))
    t = b.fma(number(b, size, -0.5), u, number(b, size, 0.5))
    first, *others = tail.polynomial[name]
    constant = number(b, size, first)
    rest = polynomial(b, u, {name: others}, steps=2)
    g = b.fma(u, rest, constant)
    g_low = b.fma(u, rest, b.sub(constant, g))
    f = b.mul(t, g)
    # t belongs to an argument that differs from size by distance / t, for which the derivative makes up.
    distance = b.fma(t, total_low, b.fma(t, total, b.neg(centre)))
    return f, b.fma(t, g_low, b.fma(t, g, b.neg(f))), b.mul(distance, polynomial(b, t, tail.slope))


def square_of(b: Builder, x: Value, share: float) -> tuple[Value, Value]:
    """share * x**2 as a sum of two; ``share`` is a power of two."""
    part = b.mul(x, number(b, x, share)) if share != 1.0 else x
    square = b.mul(x, part)
    return square, b.fma(x, part, b.neg(square))


def fallen(b: Builder, size: Value, tail: Tail, share: float) -> Value:
    """exp(-share * size**2) f(size)."""
    f, f_low, correction = left_over(b, size, tail)
    square, missing = square_of(b, size, share)
    m, k = exp_parts(b, b.neg(square), b.sub(correction, missing))
    return b.scalb(b.add(f, b.fma(m, f, f_low)), k)


def erfc(b: Builder, x: Value) -> Value:
    y = fallen(b, clamp(b, b.abs(x), None, ERFC_HIGH[x.type.dtype.name]), ERFC, 1.0)
    return b.select(b.lt(x, number(b, x, 0.0)), b.sub(number(b, x, 2.0), y), y)


def ndtr(b: Builder, x: Value) -> Value:
    y = fallen(b, clamp(b, b.abs(x), None, NDTR_HIGH[x.type.dtype.name]), NDTR, 0.5)
    return b.select(b.gt(x, number(b, x, 0.0)), b.sub(number(b, x, 1.0), y), y)


def log_ndtr(b: Builder, x: Value) -> Value:
    """log(f(abs(x))) - x**2 / 2 for x < 0, log(1 - y) with y = ndtr(-x) for others; one logarithm serves both."""
    name = x.type.dtype.name
    zero, one, two = (number(b, x, c) for c in (0.0, 1.0, 2.0))
    is_below = b.lt(x, zero)
    size = b.abs(x)
    size = b.select(is_below, size, clamp(b, size, None, NDTR_HIGH[name]))
    f, f_low, correction = left_over(b, clamp(b, size, None, LOG_HIGH[name]), NDTR)
    square, missing = square_of(b, size, 0.5)
    m, k = exp_parts(b, b.neg(square), b.sub(correction, missing))
    rest = b.fma(m, f, f_low)
    total = b.add(f, rest)
    y, y_low = b.scalb(total, k), b.scalb(b.sub(rest, b.sub(total, f)), k)
    exponent, part = split_positive(b, f)
    part_low = b.fma(b.scalb(f_low, b.neg(exponent)), b.sub(one, part), correction)
    is_half = b.gt(y, number(b, x, 0.25))
    part = b.select(is_below, part, b.select(is_half, b.fma(b.neg(two), y, one), b.neg(y)))
    exponent = b.select(is_below, exponent, b.select(is_half, b.neg(one), zero))
    y_low = b.mul(y_low, b.select(is_half, number(b, x, -1.65), number(b, x, -1.1)))
    low = b.add(log_tail(b, part), b.select(is_below, b.sub(part_low, missing), y_low))
    less, less_low = two_sum(b, part, b.select(is_below, b.neg(square), zero))
    found = join(b, exponent, less, b.add(low, less_low))
    found = b.select(b.lt(square, number(b, x, float("inf"))), found, b.neg(square))
    return b.copysign(found, number(b, x, -1.0))
