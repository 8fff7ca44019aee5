"""The rows of the sweep over derivatives that are not elementwise functions of floats: how the derivatives of each op are held to
what they are.

``MULTILINEAR``: ops that are linear in each single element (or, of whole numbers, in a neighbourhood of it), so that
derivatives are differences of whole numbers, to the last bit. ``PROGRAMS``: ops that take programs, by a program whose
derivatives are known to 80 digits. ``MATRICES``: of linear algebra, against mpmath. ``REASONS``: why an op has no row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import mp

import pullback as pb
from tests.support.derivatives.jets import Jet, constant, exp, sin, sqrt, variables

MULTILINEAR = [
    "add",
    "sub",
    "neg",
    "mul",
    "select",
    "real",
    "imag",
    "conj",
    "complex",
    "broadcast",
    "concat",
    "flip",
    "pad",
    "reshape",
    "shift",
    "roll",
    "roll_by",
    "slice",
    "squeeze",
    "transpose",
    "windows",
    "gather",
    "scatter_add",
    "scatter_add_part",
    "scatter_set",
    "scatter_set_part",
    "slice_add",
    "slice_set",
    "sum",
    "cumsum",
    "contract",
    "prod",
    "linear_recurrence",
    "max",
    "min",
    "sort",
    "fma",
]
FOURIER = ["fft", "ifft", "rfft", "irfft"]
OF_ANOTHER = (
    "the derivative of another op, in whose row it is one: tests/ir/test_derivative_tails.py; its values: "
    "tests/codegen/cpu/test_math.py"
)
NO_NUMBER = "its results are booleans or integers, or parts of their bits"
KEPT = "no derivative flows through it"
REASONS = {
    **dict.fromkeys(
        [
            "eq",
            "ne",
            "lt",
            "is_index",
            "add_fits",
            "sub_fits",
            "mul_fits",
            "le",
            "gt",
            "ge",
            "bitand",
            "bitor",
            "bitxor",
            "bitnot",
            "shl",
            "shr",
            "mulhi",
            "philox",
            "gcd",
            "all",
            "any",
            "bitcast",
        ],
        NO_NUMBER,
    ),
    **dict.fromkeys(
        [
            "sech2",
            "tanh_tail",
            "logistic_pdf",
            "logistic_logpdf",
            "one_minus_square",
            "lorentzian",
            "over_hypot",
            "pow_slope_at",
            "over_squares_at",
            "normal_pdf_at",
            "exp_square_at",
            "inverse_mills_at",
            "gauss",
            "normal_pdf",
            "inverse_mills",
            "mills_gap",
            "ierfcx",
            "i2erfcx",
            "digamma_step",
            "trigamma_step",
        ],
        OF_ANOTHER,
    ),
    "ordered_after": "its first operand as it is, after all derivatives are taken: ir/passes/transforms/rematerialize.py",
    "nextafter": "the identity in its first argument: held by tests/ir/test_op_table.py and docs/gradient-policy.md",
    "reciprocal": "of complex numbers, made of 1 / z: with differences in the plane by tests/tracer/functions/test_complex.py",
    "lpmv": "its order is an integer and its degree a parameter: differences in tests/tracer/functions/test_special.py",
    "hessenberg": "it declares that its derivative is not known; one is an error: tests/tracer/functions/test_linalg.py",
    "reflections": "as hessenberg; qr has derivatives",
    "schur": "as hessenberg; sqrtm, logm and sylvester, which are built on it, have derivatives",
    "triangular_sylvester": "as hessenberg; sylvester has derivatives",
    "cofactors": "the derivative of det: its second derivatives in the row of det are the first of this",
    "spectral_sum": "a sum of a function of the eigenvalues: differences at both orders in tests/ir/test_op_table.py",
    "spectral_map": "the derivative of spectral_sum: held as that",
    "callback": "it has no derivative of its own; the program of custom has one around a callback",
    "log_gamma_draw": "how draws move with a parameter is held by tests/pullback/test_random.py against differences of quantiles",
    "inverse_gaussian_draw": "as log_gamma_draw",
    "hermitian_from_triangle": "made by matrix functions of symmetric arguments: the program of cholesky reads one triangle",
}


# programs


@dataclass(frozen=True)
class Program:
    """A function of one number, and the same as a formula over jets. ``point``: where; ``bound``: the error of the value, the
    first and the second derivative allowed, in units as in the sweep."""

    call: Callable[[Any], Any]
    exact: Callable[[Jet], Jet]
    point: float = 0.7
    bound: int = 16


def _horner(x: Jet) -> Jet:
    total = constant(x.count, 1)
    for k in range(6):
        total = total * x + k
    return total


def _heron(x: Jet) -> Jet:
    total = constant(x.count, 1) + x
    for _ in range(5):
        total = (total + x / total) / 2
    return total


@pb.custom_vjp
def _outside(x: Any) -> Any:
    return pb.callback(np.exp, x, x)


_outside.defvjp(lambda x: ((y := pb.callback(np.exp, x, x)), y), lambda y, ct: (ct * _outside_again(y),))


def _outside_again(y: Any) -> Any:
    """exp(x) from itself, so that a second derivative has a way."""
    return y


@pb.custom_jvp
def _squared(x: Any) -> Any:
    return x * x


_squared.defjvp(lambda primals, tangents: (_squared(primals[0]), 2 * primals[0] * tangents[0]))

ROWS_OF_SCAN = np.arange(6.0)
def _timed(x: Any) -> Any:
    y = np.exp(x)
    start = time.perf_counter()
    z = np.sin(x) * y
    return z * x + 0.0 * (time.perf_counter() - start)


PROGRAMS: dict[str, Program] = {
    "scan": Program(lambda x: pb.scan(lambda c, row: (c * x + row, None), 1.0, ROWS_OF_SCAN)[0], _horner),
    "while": Program(
        lambda x: pb.while_loop(lambda s: s[1] < 5, lambda s: ((s[0] + x / s[0]) / 2, s[1] + 1), (1.0 + x, 0))[0], _heron
    ),
    "switch": Program(lambda x: pb.cond(x > 0.5, lambda v: np.sin(v) * v, lambda v: np.exp(v), x), lambda x: sin(x) * x),
    "custom": Program(lambda x: np.sin(_squared(x)), lambda x: sin(x * x)),
    "barrier": Program(pb.checkpoint(lambda x: np.exp(np.sin(x)) * x), lambda x: exp(sin(x)) * x),
    "saved": Program(pb.checkpoint(lambda x: np.sqrt(np.exp(x) + x), budget=0), lambda x: sqrt(exp(x) + x)),
    "clock": Program(_timed, lambda x: exp(x) * sin(x) * x),
    "cotangent_tap": Program(lambda x: np.exp(pb.print_grad(x)) * x, lambda x: exp(x) * x),
    "group": Program(lambda x: np.exp(x) * np.sin(x) + x, lambda x: exp(x) * sin(x) + x),
    "gradient": Program(lambda x: pb.grad(lambda y: np.exp(y) * y)(x), lambda x: exp(x) * (x + 1)),
    "jvp": Program(lambda x: pb.jvp(lambda y: np.exp(y) * y, (x,), (1.0,))[1], lambda x: exp(x) * (x + 1)),
    "vmap": Program(lambda x: np.sum(pb.vmap(lambda y: np.exp(y) * y)(np.stack([x, x]))), lambda x: exp(x) * x * 2),
}


def of_program(name: str, mode: str) -> list[float]:
    """The errors of the value, first and second derivative of a program, in units of u (|f| + |x f'|) and so on."""
    program = PROGRAMS[name]
    f, x = program.call, program.point
    if mode == "reverse":
        result = [pb.jit(f)(x), pb.grad(f)(x), pb.grad(pb.grad(f))(x)]
    else:

        def along(g: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return lambda v: pb.jvp(g, (v,), (1.0,))[1]

        result = [pb.jit(f)(x), pb.jit(along(f))(x), pb.jit(along(along(f)))(x)]
    with mp.workdps(80):
        jet = program.exact(variables([x])[0])
        right = [jet.derivative((k,)) for k in range(4)]
        unit = mp.ldexp(1, -53)
        return [
            float(abs(mp.mpf(float(result[k])) - right[k]) / (unit * (abs(right[k]) + abs(x * right[k + 1])))) for k in range(3)
        ]
