"""The error function, its complement, the normal distribution function and their derivatives: erf, erfc, ndtr, erfcx, ...

erf is a piecewise polynomial, each piece about a centre where erf is very nearly a number of the format. erfc(x) = exp(-x**2)
t g(1 - 2 t) and ndtr(-x) = exp(-x**2 / 2) t g(1 - 2 t) with t = c / (c + x), in the manner of Shepherd and Laframboise,
Chebyshev approximation of (1 + 2x) exp(x**2) erfc(x), Math. Comp. 36 (1981); t g is a sum of two floats. The coefficients are
our own fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pullback.codegen.math.basis import Coefficients, clamp, constant, polynomial, two_sum
from pullback.codegen.math.exponential import exp_parts, or_zero
from pullback.codegen.math.logarithm import join, log_tail, split_positive
from pullback.codegen.math.piecewise import Pieces, looked_up, nearest_multiple, piecewise
from pullback.ir.core.builder import Builder
from pullback.ir.core.value import Value

# Pieces about centres c, each near a multiple of ERF_STEP; erf(c) and, in float64, erf'(c) are very nearly numbers of the
# format. Rows: c, erf(c), erf'(c), in float32 the rounding error of erf'(c), then the coefficients of t**2, ... in erf(c + t).
# Interpolated at Chebyshev's points; greatest error relative to erf 2**-56.0 and 2**-27.2.
ERF: Pieces = {
    "f64": (
        (0.0, 0.38388513028621674, 0.7678271979093552, 1.151791751384735, 1.5356596261262894, 1.9196224957704544,
         2.3033862859010696, 2.6873946636915207, 3.0713451504707336, 3.4551673382520676, 3.839150920510292, 4.223022609949112,
         4.606935679912567, 4.9909446239471436, 5.366669073700905, 5.770491853356361),
        (0.0, 0.412798285232113, 0.722464213011905, 0.8966614727318795, 0.9701255256860971, 0.9933675416813046,
         0.9988759387029583, 0.9998556247072296, 0.9999859793766522, 0.9999989727461537, 0.9999999434496168,
         0.9999999976600482, 0.9999999999274027, 0.999999999998314, 0.9999999999999679, 0.9999999999999997),
        (1.1283791670955126, 0.9737647292267959, 0.6257675090154002, 0.29943976477898093, 0.10672837220670904,
         0.028320530198519187, 0.005601022299376055, 0.0008240265227228106, 9.029948545910667e-05, 7.375114741509543e-06,
         4.4807843003127383e-07, 2.0289999119465227e-08, 6.839925287702105e-10, 1.715475018979085e-11, 3.501710277784824e-13,
         3.900022814123689e-15),
        (0.0, -0.3738137999473511, -0.48048131299001196, -0.34489225110901556, -0.16389845216002225, -0.05436472686122393,
         -0.012901317951408885, -0.00221448447990556, -0.00027734088675482945, -2.5482255570725225e-05, -1.720240717115403e-06,
         -8.568512503734589e-08, -3.151109585583244e-09, -8.561840823462551e-11, -1.8792520252496903e-12,
         -2.250504987506725e-14),
        (-0.3761263890318375, -0.22892053687854888, 0.03736191046215238, 0.1650161117029243, 0.13221869977558853,
         0.06013299170664142, 0.017944138459757647, 0.003692787008509661, 0.0005377732298880971, 5.623859985480428e-05,
         4.253483011731431e-06, 2.3447014720620746e-07, 9.449975277840456e-09, 2.791595727971967e-10, 6.606825474580589e-12,
         8.527679704328598e-14),
        (0.0, 0.16854419504477025, 0.1458166921540462, 0.01993198555051835, -0.04688864214550014, -0.039594746188610364,
         -0.01636570190311512, -0.004223826557109287, -0.0007333966385839719, -8.86628014932103e-05, -7.5914680374982935e-06,
         -4.665246581656969e-07, -2.0717344282664434e-08, -6.680955156482753e-10, -1.7101905696408433e-11,
         -2.3854285103180996e-13),
        (0.11283791670951604, 0.04279551695406809, -0.05599338199663463, -0.05868783212920984, -0.010863612066001727,
         0.012362888687207217, 0.009695371791188566, 0.00343259947741824, 0.0007396737147476438, 0.00010566634637877617,
         1.0381871698223028e-05, 7.177166276384374e-07, 3.534239643844153e-08, 1.250023216170388e-09, 3.47300596137517e-11,
         5.250207870780372e-13),
        (0.0, -0.050421306185148146, -0.024553370725553258, 0.017216857498433595, 0.01806457473015828, 0.0026479059031022053,
         -0.0030798749680520958, -0.0019485627568659389, -0.0005616919884005465, -9.8054889258707e-05, -1.1261465971824041e-05,
         -8.859046044433224e-07, -4.874875609447356e-08, -1.9014399141339094e-09, -5.7567718969389267e-11,
         -9.462637833456734e-13),
        (-0.02686617063397889, -0.004659126030768304, 0.018718256422080155, 0.00830751209612583, -0.005339436574079551,
         -0.004395824853070156, -0.0002815242089073563, 0.000678873597773031, 0.0003167872007496493, 7.164021766466495e-05,
         9.880830759462018e-06, 8.980279987766054e-07, 5.575154028907582e-08, 2.413798827702388e-09, 8.000149943034843e-11,
         1.43511237687852e-12),
        (0.0, 0.011251704750781385, 0.0016683420482690836, -0.006081456913775065, -0.0018210921795544226,
         0.0015421728503291026, 0.0008220881936512758, -3.855123281846673e-05, -0.0001228781644048841, -4.087046494949308e-05,
         -7.070326584384757e-06, -7.582616736086335e-07, -5.376491144393319e-08, -2.604351779876753e-09,
         -9.500142363765863e-11, -1.8676424806078323e-12),
        (0.0052239763332938794, -5.391678250641068e-05, -0.003924326389769209, -5.8778535890923466e-05, 0.001659685215908858,
         0.00019687959014473157, -0.00036605618067990275, -0.00010898050425923565, 2.2269429755586616e-05,
         1.7450918651431093e-05, 4.110739594545322e-06, 5.36973423113708e-07, 4.420187450712242e-08, 2.419120122817726e-09,
         9.774081766246112e-11, 2.1158254933875696e-12),
        (0.0, -0.0019959981375547095, 0.0003059390566922614, 0.0010946529867174608, -0.00018593120038168221,
         -0.00034976085128529693, 2.2472418219796567e-05, 6.543214878852042e-05, 8.166902350181776e-06,
         -4.7937326550754324e-06, -1.8995213831889533e-06, -3.18715618345921e-07, -3.116184823914824e-08,
         -1.950743001085016e-09, -8.792436944213363e-11, -2.1057908852351385e-12),
        (-0.0008547649936961564, 0.00014811981222053038, 0.000599408544603964, -0.00021959266706059584,
         -0.00021965992848361636, 8.984559298724742e-05, 5.048781932330423e-05, -1.4135631886642451e-05,
         -8.204635381807035e-06, 1.5560111689920657e-07, 6.53220205390961e-07, 1.568614372133132e-07, 1.887290133316393e-08,
         1.3748421342817348e-09, 6.984490342231109e-11, 1.86505076302599e-12),
        (0.0, 0.00028896018170212036, -0.00012046412643339349, -0.00012285762060792432, 8.291139668239729e-05,
         2.448738752072732e-05, -2.24899641747677e-05, -3.6759583082412545e-06, 2.9307258680829355e-06, 6.469466209602006e-07,
         -1.273067629755909e-07, -6.241572065157308e-08, -9.938033329722631e-09, -8.721666254851268e-10,
         -5.1262168045988454e-11, -1.5615066632310392e-12),
        (0.00011891592218897148, -3.747270795921201e-05, -6.931214610168379e-05, 5.20454440725535e-05, 1.1189649507466468e-05,
         -1.962410887608353e-05, 8.519703263735149e-07, 3.4607720800274866e-06, -2.266388719218386e-07,
         -3.6018116362026573e-07, -1.6478377251029372e-08, 1.8155162006962457e-08, 4.307251685608256e-09,
         4.669325062500198e-10, 3.176999039321843e-11, 1.0960711456155696e-12),
    ),
    "f32": (
        (0.0, 0.25574994, 0.51243067, 0.76787233, 1.0232718, 1.2788453, 1.5353696, 1.7904453, 2.0469878, 2.3022995, 2.5590842,
         2.8141696, 3.071495, 3.3255606, 3.5786128, 3.832507),
        (0.0, 0.2824126, 0.53135556, 0.72249246, 0.85213804, 0.9294807, 0.97009456, 0.98866093, 0.99620694, 0.99886984,
         0.99970436, 0.99993104, 0.999986, 0.99999744, 0.9999996, 0.99999994),
        (1.1283792, 1.056936, 0.86779225, 0.62572414, 0.3960151, 0.21988225, 0.10682347, 0.045734048, 0.017088037, 0.005629128,
         0.0016154696, 0.00041023985, 9.0216374e-05, 1.775984e-05, 3.0951092e-06, 4.7150937e-07),
        (-5.8635383e-08, 2.6219995e-08, -1.21409895e-08, -1.2268623e-09, -7.643987e-09, 3.1085212e-09, -2.8347709e-09,
         -2.7385857e-10, -8.401156e-10, 7.352922e-11, 2.830694e-11, 3.3942296e-12, -2.0379688e-12, -1.06474406e-13,
         6.041236e-14, 2.9778835e-15),
        (0.0, -0.27031133, -0.44468334, -0.48047626, -0.4052311, -0.2811954, -0.1640135, -0.08188431, -0.034979, -0.0129599385,
         -0.0041341227, -0.0011544846, -0.00027709914, -5.906142e-05, -1.1076198e-05, -1.8070629e-06),
        (-0.37612414, -0.30622262, -0.13735169, 0.03738666, 0.1444348, 0.16644265, 0.13227352, 0.0824954, 0.042038616,
         0.018015422, 0.0065145018, 0.002029147, 0.00053730607, 0.00012501083, 2.538952e-05, 4.458862e-06),
        (-0.0, 0.12926133, 0.18341842, 0.14580391, 0.06117882, -0.012695073, -0.046872713, -0.046556626, -0.031366486,
         -0.016418511, -0.006957619, -0.002470414, -0.0007328318, -0.0001881908, -4.174193e-05, -7.9431875e-06),
        (0.11229004, 0.07832244, 0.003740906, -0.055616643, -0.068080306, -0.043390036, -0.011004006, 0.008475381, 0.013013918,
         0.009709378, 0.005180719, 0.0021842578, 0.0007457744, 0.00021544338, 5.2999207e-05, 1.1069762e-05),
        (0.0, -0.040973507, -0.049326245, -0.0245131, 0.006901642, 0.021790689, 0.018037878, 0.007306833, -0.00052283285,
         -0.0030606922, -0.002549895, -0.001381254, -0.0005639167, -0.00018708795, -5.1593786e-05, -1.1893236e-05),
    ),
}  # fmt: skip
ERF_STEP = {"f64": 0.3839111328125, "f32": 0.255859375}
# Beyond these erf is 1 in round to nearest.
ERF_HIGH = {"f64": 5.95, "f32": 3.96}


class Tail(NamedTuple):
    """A function that falls like exp(-x**2) or exp(-x**2 / 2), for x >= 0.

    The function divided by its exponential, f(x), is t g(1 - 2 t) with t = centre / (centre + x). ``slope``: f'(x) / f(x) / t
    as a polynomial in t, to a few percent. The centre and the first coefficient of g have enough trailing zeros that the
    differences between the sums that start with them and them are exact.
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
# Quotient of an integral of erfc and the previous one, over t = INTEGRAL_CENTRE / (INTEGRAL_CENTRE + x), in 1 - 2 t: Chebyshev's
# interpolation, greatest relative error 2**-56 and 2**-26.5 before the coefficients are rounded.
INTEGRAL_CENTRE = 3.0
FIRST_INTEGRAL: Coefficients = {
    "f64": (
        0.3037536890032344, -0.20751568538188433, 0.0816992541541646, 0.002138289161965631, -0.02337377169854558,
        0.010048858428922542, 0.003182928756185652, -0.00450337676998321, 0.0005605458269394034,
        0.0013013542995673954, -0.000585591926006421, -0.00025325303747447854, 0.0002556209706877281,
        1.3469110347216276e-05, -8.135221475658979e-05, 1.5343250456813982e-05, 1.992615135224052e-05,
        -8.966545162993645e-06, -3.31596845946136e-06, 3.229489157455409e-06, 4.723711444156221e-08,
        -8.768453891404434e-07, 2.189195980580056e-07, 1.7987345231000332e-07, -9.254025549719649e-08,
        -2.5305775431807407e-08, 2.0540591019786164e-08, 1.8312554144561861e-09, -2.1046325423781287e-09,
    ),
    "f32": (
        0.30375367, -0.20751569, 0.08169929, 0.002138319, -0.023374503, 0.010048611, 0.0031889346, -0.0045027514,
        0.00053605274, 0.0013021147, -0.00053034653, -0.00026016918, 0.00018410795, 2.8103272e-05, -2.9098375e-05,
    ),
}  # fmt: skip
SECOND_INTEGRAL: Coefficients = {
    "f64": (
        0.29214108734446287, -0.16662278927721194, 0.02565736630422542, 0.034607771393249165, -0.01929891046914306,
        -0.007265566210181378, 0.0092083670127098, 0.0010186752496493408, -0.004003757866543179,
        0.00021198065734889747, 0.001671275217676542, -0.0002974159922041747, -0.0006796701543768964,
        0.00019196187588571702, 0.00027040472788995005, -0.00010120203752675357, -0.0001051328845144142,
        4.827575597613501e-05, 3.972764074457083e-05, -2.1588489335874488e-05, -1.4416637071096842e-05,
        9.125967291553155e-06, 4.900511769632771e-06, -3.578568788302435e-06, -1.485901170958381e-06,
        1.2329675681965758e-06, 3.6840775833408464e-07, -3.392492455098788e-07, -6.428885234565523e-08,
        6.393208954596509e-08, 5.730957646909979e-09, -6.004420797117681e-09,
    ),
    "f32": (
        0.29214108, -0.16662279, 0.025657266, 0.034607876, -0.01929675, -0.007267067, 0.009190343, 0.0010286478,
        -0.00392853, 0.0001759911, 0.0014952077, -0.00022058286, -0.00043645743, 9.059718e-05, 6.7897636e-05,
        -1.6067275e-05,
    ),
}  # fmt: skip
# From here on exp(x**2) erfc(x) sqrt(pi) x - 1 is evaluated by an asymptotic series in 1 / x**2.
ERFCX_HIGH = {"f64": 27.0, "f32": 10.0}
ERFCX_SERIES: Coefficients = {
    "f64": (-1 / 2, 3 / 4, -15 / 8, 105 / 16, -945 / 32, 10395 / 64, -135135 / 128),
    "f32": (-1 / 2, 3 / 4, -15 / 8),
}
# Beyond these exp(x**2) is infinite, and exp(-x**2) and the normal density are 0 in round to nearest.
SQUARE_HIGH = {"f64": 26.8, "f32": 9.5}
GAUSS_HIGH = {"f64": 27.3, "f32": 10.2}
DENSITY_HIGH = {"f64": 38.6, "f32": 14.45}
# 1 / sqrt(2 pi) as a sum of two.
ROOT_2PI = {"f64": (0.3989422804014327, -2.49232720227773e-17), "f32": (0.3989422917366028, -1.1335170135851058e-08)}
ROOT_PI = 0.5641895835477563
"""1 / sqrt(pi)."""
# Beyond this the logarithm of f is negligible against half the square.
LOG_HIGH = {"f64": 2.0**30, "f32": 2.0**16}


def erf(b: Builder, x: Value) -> Value:
    name = x.type.dtype.name
    (centres, values, slopes, *others), size = ERF[name], clamp(b, b.abs(x), None, ERF_HIGH[name])
    index = nearest_multiple(b, size, ERF_STEP[name])
    t = b.sub(size, looked_up(b, index, centres, x))
    value, slope = (looked_up(b, index, row, x) for row in (values, slopes))
    tail = b.mul(t if name == "f32" else b.mul(t, t), piecewise(b, t, index, others))
    return b.copysign(b.add(b.fma(t, slope, tail), value), x)


def tail_factor(b: Builder, size: Value, tail: Tail) -> tuple[Value, Value, Value]:
    """Return f of a finite ``size`` as a sum of two, and the relative correction that is still to be added to it."""
    name = size.type.dtype.name
    centre = constant(b, size, tail.centre[name])
    total = b.add(centre, size)
    total_low = b.sub(size, b.sub(total, centre))
    u = b.fma(constant(b, size, -2.0), b.div(centre, total), constant(b, size, 1.0))
    t = b.fma(constant(b, size, -0.5), u, constant(b, size, 0.5))
    f, f_low = _tail_value(b, t, u, tail)
    # t belongs to an argument that differs from size by distance / t; the derivative corrects for it.
    distance = b.fma(t, total_low, b.fma(t, total, b.neg(centre)))
    return f, f_low, b.mul(distance, polynomial(b, t, tail.slope))


def _tail_value(b: Builder, t: Value, u: Value, tail: Tail) -> tuple[Value, Value]:
    """Return t times the polynomial of a tail in u, as a sum of two."""
    name = t.type.dtype.name
    first, *others = tail.polynomial[name]
    leading = constant(b, t, first)
    rest = polynomial(b, u, {name: others}, steps=2)
    g = b.fma(u, rest, leading)
    g_low = b.fma(u, rest, b.sub(leading, g))
    f = b.mul(t, g)
    return f, b.fma(t, g_low, b.fma(t, g, b.neg(f)))


def square_of(b: Builder, x: Value, share: float) -> tuple[Value, Value]:
    """Return share * x**2 as a sum of two; ``share`` is a power of two."""
    part = b.mul(x, constant(b, x, share)) if share != 1.0 else x
    square = b.mul(x, part)
    return square, b.fma(x, part, b.neg(square))


def scaled_tail(b: Builder, size: Value, tail: Tail, share: float, high: Mapping[str, float]) -> Value:
    """Return exp(-share * size**2) f(size), which is 0 from ``high`` on."""
    most = high[size.type.dtype.name]
    size = clamp(b, size, None, most)
    f, f_low, correction = tail_factor(b, size, tail)
    square, missing = square_of(b, size, share)
    m, k = exp_parts(b, b.neg(square), b.sub(correction, missing))
    return b.scalb(or_zero(b, b.ne(size, constant(b, size, most)), b.add(f, b.fma(m, f, f_low))), k)


def erfc(b: Builder, x: Value) -> Value:
    y = scaled_tail(b, b.abs(x), ERFC, 1.0, ERFC_HIGH)
    return b.select(b.lt(x, constant(b, x, 0.0)), b.sub(constant(b, x, 2.0), y), y)


def ndtr(b: Builder, x: Value) -> Value:
    y = scaled_tail(b, b.abs(x), NDTR, 0.5, NDTR_HIGH)
    return b.select(b.gt(x, constant(b, x, 0.0)), b.sub(constant(b, x, 1.0), y), y)


def log_ndtr(b: Builder, x: Value) -> Value:
    """Return log(f(abs(x))) - x**2 / 2 for x < 0, and log(1 - y) with y = ndtr(-x) for other x; one logarithm serves both."""
    name = x.type.dtype.name
    zero, one, two = (constant(b, x, c) for c in (0.0, 1.0, 2.0))
    is_below = b.lt(x, zero)
    size = b.abs(x)
    size = b.select(is_below, size, clamp(b, size, None, NDTR_HIGH[name]))
    f, f_low, correction = tail_factor(b, clamp(b, size, None, LOG_HIGH[name]), NDTR)
    square, missing = square_of(b, size, 0.5)
    m, k = exp_parts(b, b.neg(square), b.sub(correction, missing))
    rest = b.fma(m, f, f_low)
    total = b.add(f, rest)
    is_gone = b.ge(size, constant(b, x, NDTR_HIGH[name]))
    kept, left, k = (b.select(is_gone, zero, v) for v in (total, b.sub(rest, b.sub(total, f)), k))
    y, y_low = b.scalb(kept, k), b.scalb(left, k)
    exponent, part = split_positive(b, f)
    part_low = b.fma(b.scalb(f_low, b.neg(exponent)), b.sub(one, part), correction)
    is_half = b.gt(y, constant(b, x, 0.25))
    part = b.select(is_below, part, b.select(is_half, b.fma(b.neg(two), y, one), b.neg(y)))
    exponent = b.select(is_below, exponent, b.select(is_half, b.neg(one), zero))
    y_low = b.mul(y_low, b.select(is_half, constant(b, x, -1.65), constant(b, x, -1.1)))
    low = b.add(log_tail(b, part), b.select(is_below, b.sub(part_low, missing), y_low))
    less, less_low = two_sum(b, part, b.select(is_below, b.neg(square), zero))
    logarithm = join(b, exponent, less, b.add(low, less_low))
    logarithm = b.select(b.lt(square, constant(b, x, float("inf"))), logarithm, b.neg(square))
    return b.copysign(logarithm, constant(b, x, -1.0))


def gauss(b: Builder, x: Value) -> Value:
    """Return exp(-x**2) with the square as a sum of two."""
    return _bell(b, x, 1.0, GAUSS_HIGH)


def normal_pdf(b: Builder, x: Value) -> Value:
    """Return exp(-x**2 / 2) / sqrt(2 pi) with the square and the factor as sums of two."""
    return _bell(b, x, 0.5, DENSITY_HIGH, ROOT_2PI[x.type.dtype.name])


def _bell(b: Builder, x: Value, share: float, high: Mapping[str, float], factor: tuple[float, float] = (1.0, 0.0)) -> Value:
    """Return exp(-share * x**2) times a factor, which is a sum of two; 0 from ``high`` on."""
    most = high[x.type.dtype.name]
    size = clamp(b, b.abs(x), None, most)
    square, missing = square_of(b, size, share)
    m, k = exp_parts(b, b.neg(square), b.neg(missing))
    whole, rest = (constant(b, x, part) for part in factor)
    return b.scalb(or_zero(b, b.ne(size, constant(b, x, most)), b.add(whole, b.fma(m, whole, rest))), k)


def inverse_mills(b: Builder, x: Value) -> Value:
    """Return the normal density over ndtr: d / f(abs(x)) for x < 0 and d e / (1 - e f(x)) for other x, with d = 1 / sqrt(2 pi)
    and e = exp(-x**2 / 2). Below -LOG_HIGH it is -x."""
    name = x.type.dtype.name
    zero, one = constant(b, x, 0.0), constant(b, x, 1.0)
    d, d_low = (constant(b, x, part) for part in ROOT_2PI[name])
    is_below = b.lt(x, zero)
    size = b.abs(x)
    size = b.select(is_below, size, clamp(b, size, None, DENSITY_HIGH[name]))
    held = clamp(b, size, None, DENSITY_HIGH[name])
    f, f_low = tail_factor_by_quotient(b, clamp(b, size, None, LOG_HIGH[name]), NDTR)
    square, missing = square_of(b, held, 0.5)
    m, k = exp_parts(b, b.neg(square), b.neg(missing))
    is_some = b.ne(held, constant(b, x, DENSITY_HIGH[name]))
    tail, density = (
        b.scalb(or_zero(b, is_some, b.add(part, b.fma(m, part, part_low))), k) for part, part_low in ((f, f_low), (d, d_low))
    )
    above = b.div(density, b.sub(one, tail))
    quotient = b.div(d, f)
    rest = b.fma(b.neg(quotient), f_low, b.add(b.fma(b.neg(quotient), f, d), d_low))
    below = b.add(quotient, b.div(rest, f))
    below = b.select(b.lt(size, constant(b, x, LOG_HIGH[name])), below, size)
    return b.select(is_below, below, above)


def tail_factor_by_quotient(b: Builder, size: Value, tail: Tail) -> tuple[Value, Value]:
    """Return f of a finite ``size`` as a sum of two, with t computed as a quotient, which stays accurate however small it is."""
    name = size.type.dtype.name
    centre = constant(b, size, tail.centre[name])
    total = b.add(centre, size)
    t = b.div(centre, total)
    missing = b.fma(t, b.sub(size, b.sub(total, centre)), b.fma(t, total, b.neg(centre)))
    u = b.fma(t, constant(b, size, -2.0), constant(b, size, 1.0))
    f, f_low = _tail_value(b, t, u, tail)
    return f, b.fma(f, b.mul(missing, polynomial(b, t, tail.slope)), f_low)


def _scaled_erfc(b: Builder, size: Value) -> Value:
    """Return exp(x**2) erfc(x) for a ``size`` x >= 0: f, and beyond its range the asymptotic series (DLMF 7.12.1)."""
    high = ERFCX_HIGH[size.type.dtype.name]
    f, f_low = tail_factor_by_quotient(b, clamp(b, size, None, high), ERFC)
    inverse = b.div(constant(b, size, 1.0), size)
    square = b.mul(inverse, inverse)
    root = b.mul(inverse, constant(b, size, ROOT_PI))
    asymptotic = b.fma(root, b.mul(square, polynomial(b, square, ERFCX_SERIES)), root)
    return b.select(b.lt(size, constant(b, size, high)), b.add(f, f_low), asymptotic)


def _exp_square(b: Builder, size: Value) -> tuple[Value, Value]:
    """Return m and k with exp(x**2) = 2**k (1 + m), for a ``size`` x >= 0."""
    square, missing = square_of(b, clamp(b, size, None, SQUARE_HIGH[size.type.dtype.name]), 1.0)
    return exp_parts(b, square, missing)


def erfcx(b: Builder, x: Value) -> Value:
    """Return exp(x**2) erfc(x): f for x >= 0, 2 exp(x**2) - f(abs(x)) for x < 0."""
    one = constant(b, x, 1.0)
    f = _scaled_erfc(b, b.abs(x))
    m, k = _exp_square(b, b.abs(x))
    grown = b.scalb(b.add(m, one), b.add(k, one))
    return b.select(b.lt(x, constant(b, x, 0.0)), b.sub(grown, f), f)


def _next_integral(b: Builder, size: Value, before: Value, rows: Coefficients) -> Value:
    """Return the scaled integral of erfc of the next order, as the product of the previous one (``before``) and a polynomial
    of their quotient."""
    t = b.div(constant(b, size, INTEGRAL_CENTRE), b.add(size, constant(b, size, INTEGRAL_CENTRE)))
    quotient = polynomial(b, b.fma(t, constant(b, size, -2.0), constant(b, size, 1.0)), rows, steps=2)
    return b.mul(b.mul(before, quotient), t)


def mills_gap(b: Builder, x: Value) -> Value:
    """Return x + inverse_mills(x); for x < 0 from the quotient of the integral of erfc and erfc at -x / sqrt(2)."""
    root = constant(b, x, 1.4142135623730951)
    size = b.mul(b.abs(x), constant(b, x, 0.7071067811865476))
    below = _next_integral(b, size, root, FIRST_INTEGRAL)
    return b.select(b.lt(x, constant(b, x, 0.0)), below, b.add(x, inverse_mills(b, x)))


def ierfcx(b: Builder, x: Value) -> Value:
    """Return exp(x**2) times the integral of erfc from x to infinity (DLMF 7.18.2). For x < 0 it is 2 abs(x) exp(x**2) more
    than at -x."""
    size = b.abs(x)
    first = _next_integral(b, size, _scaled_erfc(b, size), FIRST_INTEGRAL)
    m, k = _exp_square(b, size)
    grown = b.mul(b.scalb(b.add(m, constant(b, x, 1.0)), k), b.add(size, size))
    return b.select(b.lt(x, constant(b, x, 0.0)), b.add(grown, first), first)


def i2erfcx(b: Builder, x: Value) -> Value:
    """Return exp(x**2) times the integral from x to infinity of the integral in ``ierfcx``; for x < 0 it is (x**2 + 1/2)
    exp(x**2) minus the value at -x."""
    size = b.abs(x)
    first = _next_integral(b, size, _scaled_erfc(b, size), FIRST_INTEGRAL)
    second = _next_integral(b, size, first, SECOND_INTEGRAL)
    m, k = _exp_square(b, size)
    whole = b.add(b.mul(size, size), constant(b, x, 0.5))
    grown = b.mul(b.scalb(b.add(m, constant(b, x, 1.0)), k), whole)
    return b.select(b.lt(x, constant(b, x, 0.0)), b.sub(grown, second), second)
