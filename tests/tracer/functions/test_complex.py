"""Complex numbers through the user's surface: values and dtypes are NumPy's, gradients those of real functions by both parts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.text import parse_function
from tests.support.agreement import agrees, plain
from tests.support.cuda.host_kernels import run_on_host
from tests.support.cuda.host_programs import expected
from tests.support.cuda.targets import UNAVAILABLE
from tests.support.versions import since

Call = Callable[..., Any]
INF, NAN = np.inf, np.nan
DTYPES = (np.complex128, np.complex64)
PARTS = [0.0, -0.0, 1.0, -1.0, 2.5, -0.5, INF, -INF, NAN, 1e-310, 1e308, -1e200, 710.0, 1e-20, 0.7071067811865476]


def drawn(shape: tuple[int, ...], dtype: Any = np.complex128, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def arguments(dtype: Any) -> list[Any]:
    """Vectors z and w, matrices a, b and s, a block c; a real vector x of the same precision; indices i."""
    x = drawn((5,), dtype, 9).real.copy()
    shapes = ((5,), (5,), (3, 4), (4, 2), (3, 3), (2, 3, 4))
    return [*(drawn(shape, dtype, k) for k, shape in enumerate(shapes)), x, np.array([3, 1, 0, 1, -1])]


# fmt: off
PROGRAMS: dict[str, Call] = {
    "arithmetic": lambda z, w, a, b, s, c, x, i: (
        z + 1, z + 1.5, z + 2j, 1j * x, z * x, z - w, z / w, z / 2, 2 / z, -z, +z, z @ w, 1j * x[0], z[0] * 1j, pow(z[0], 2)
    ),
    "powers": lambda z, w, a, b, s, c, x, i: (
        z**2, z**3, z**-2, z**0.5, z**w, 2**z, z**x, (1 + 2j) ** x, z**i, np.float_power(z, 3), np.square(z), np.reciprocal(z)
    ),
    "parts": lambda z, w, a, b, s, c, x, i: (
        abs(z), z.real, z.imag, np.real(a), np.imag(a), x.imag, z.conj(), np.conj(a), np.angle(z), np.angle(z, deg=True),
        np.angle(x), np.sign(z), np.rint(z), np.round(z, 2), z.round(1), np.isreal(z), np.iscomplex(z * x.astype(int)),
        np.iscomplexobj(z), np.isrealobj(z), np.nan_to_num(z / 0), z[0].real, z[0].conjugate(), complex(x[0], x[1]) * 2,
        complex(z[0]).imag, z.itemsize, np.result_type(z, x),
    ),
    "order": lambda z, w, a, b, s, c, x, i: (
        z == w, z != z, z < w, z >= w, np.maximum(z, w), np.minimum(z, w), np.clip(z, -1 - 1j, 1 + 1j), np.where(x > 0, z, 0),
        np.where(x > 0, x, 1j), np.logical_and(z, w), np.logical_not(z), np.isclose(z, z + 1e-9), np.array_equal(z, z),
        np.max(z), np.min(c, axis=(0, 1)), np.argmax(a, axis=1), np.argmin(z), np.max(a, initial=5j), np.ptp(z), np.any(z),
        np.select([x > 0, x < -1], [z, w], 0), np.count_nonzero(z),
    ),
    "reductions": lambda z, w, a, b, s, c, x, i: (
        np.sum(z), np.sum(c, axis=(0, 2), keepdims=True), np.sum(a, axis=1, initial=2j), np.sum(a, where=a.real > 0),
        np.sum(x, dtype=complex), np.prod(z), np.prod(c, axis=1), np.prod(c, axis=(0, 2)), np.cumsum(a, axis=0), np.cumprod(a, 1),
        np.mean(a, axis=0), np.var(z), np.var(a, axis=1), np.std(a, ddof=1), np.average(z, weights=x), np.trace(s), sum(z),
        np.nansum(z), np.nanvar(z), np.add.reduce(z), np.multiply.accumulate(z),
    ),
    "products": lambda z, w, a, b, s, c, x, i: (
        a @ b, a.T @ a, np.matmul(c, b), a @ b[:, 0], x @ z, np.dot(z, 2), np.vdot(z, w), np.vdot(a, a), np.vecdot(a, a),
        np.inner(a, a), np.outer(z, w), np.tensordot(c, a, axes=([1, 2], [0, 1])), np.einsum("ij,ij", a, a.conj()),
        np.einsum("ii", s), np.kron(z, w), np.cross(z[:3], w[:3]), np.linalg.norm(z), np.linalg.norm(a, axis=1),
        np.linalg.norm(z, 1), np.linalg.norm(z, np.inf), np.linalg.norm(z, 3), np.linalg.norm(a, "fro"),
        np.convolve(z, w), np.correlate(z, w, "full"), np.cov(a), np.corrcoef(a), np.interp(x, np.arange(5.0), z),
    ),
    "indices": lambda z, w, a, b, s, c, x, i: (
        z[1], z[-1], z[1:3], z[::-1], a[1], a[:, 1], a[..., None], a[1, 2], z[i], a[i % 3], a[:, i % 4], a[i % 3, i % 4],
        z[np.array([True, False, True, True, False])], np.take(z, i), np.take_along_axis(a, np.argsort(a.real, 1), 1),
        a[np.ix_([0, 2], [1, 3])],
    ),
    "shapes": lambda z, w, a, b, s, c, x, i: (
        a.T, a.reshape(4, 3), a.ravel(), np.transpose(c, (2, 0, 1)), np.moveaxis(c, 0, -1), np.expand_dims(z, 0),
        np.broadcast_to(z, (2, 5)), np.concatenate([z, w]), np.concatenate([z, x]), np.stack([z, w]), np.column_stack([z, x]),
        np.tile(z, 2), np.repeat(z, 2), np.roll(z, 1), np.flip(a, 1), np.pad(a, ((1, 0), (0, 2)), constant_values=1j),
        np.diag(z), np.diagonal(s), np.tril(s), np.append(z, 1j), np.diff(z), np.gradient(z), np.trapezoid(z, x),
        np.polyval(z, w), np.vander(z, 3), np.linspace(0, z[0], 4), a.T[1:, ::2] * 2, a[:, :2].T.reshape(2, 3),
    ),
    "dtypes": lambda z, w, a, b, s, c, x, i: (
        z.astype(np.complex64), z.astype(np.complex128), x.astype(complex), i.astype(np.complex64), z.astype(bool),
        np.asarray(z, dtype=np.complex64), np.array([z[0], 1.0, 2j]), np.array([[z[0], x[0]], [1j, 2]]), np.zeros_like(z),
        np.full_like(z, 2j), np.full(3, 1j) * z[:3], np.eye(3, dtype=complex) @ s, np.arange(5) * z, z + np.float32(1),
        z + np.float64(1), z * np.complex64(1j), x + np.complex64(1), i + 1j, (x > 0) * 1j, x.astype(np.float32) + 1j,
    ),
}
# fmt: on


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_numpy_gives(name: str, dtype: Any) -> None:
    rtol, atol = (1e-12, 1e-13) if dtype is np.complex128 else (2e-5, 2e-5)
    agrees(PROGRAMS[name], *arguments(dtype), rtol=rtol, atol=atol)


FUNCTIONS = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh",
    "cosh", "tanh", "arcsinh", *since(np, "2.3.0", "arccosh"), "arctanh", "sign", "reciprocal", "abs", "isnan", "isinf",
    "isfinite", "angle", "conj",
]  # fmt: skip
UNSIGNED = {"exp", "exp2", "sin", "cos", "sinh", "cosh", "arcsin", "arcsinh"}
"""Functions for which C99 leaves the sign of some zeros, and of some infinities paired with a NaN, unspecified."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("first", range(0, len(FUNCTIONS), 7))
def test_functions_of_special_values(first: int, dtype: Any) -> None:
    z = np.array([complex(a, b) for a in PARTS for b in PARTS])
    rng = np.random.default_rng(1)
    z = np.concatenate([z, drawn((100,)), drawn((100,), seed=3) * 10.0 ** rng.integers(-12, 12, 100)])
    names = FUNCTIONS[first : first + 7]
    with np.errstate(all="ignore"):
        z = z.astype(dtype)
        if dtype is np.complex64:
            z = z[~(np.abs(z.imag) > 100) | ~np.isfinite(z.imag)]

    def call(z: Any) -> Any:
        return [getattr(np, name)(z) for name in names]

    for name, result, wanted in zip(names, pb.jit(call)(z), plain(call, z)):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind == "b":
            np.testing.assert_array_equal(result, wanted)
            continue
        eps = np.finfo(wanted.dtype).eps
        size = np.where(np.isfinite(wanted), np.abs(wanted), 0)
        absolute = 2 * eps if name == "log1p" else 0
        for part in ("real", "imag"):
            f, w = getattr(result, part), getattr(wanted, part)
            near = np.abs(f.astype(float) - w) <= 24 * eps * np.maximum(size, np.abs(w)) + np.finfo(wanted.dtype).tiny + absolute
            alike = (np.isnan(f) & np.isnan(w)) | (f == w) | (np.isinf(f) & np.isinf(w) & (name in UNSIGNED))
            signed = (np.signbit(f) == np.signbit(w)) | (w != 0) | (f != 0) | (name in UNSIGNED)
            wrong = np.flatnonzero(~((np.isfinite(w) & near) | alike) | ~signed)
            assert not wrong.size, (name, part, z[wrong[:3]], result[wrong[:3]], wanted[wrong[:3]])


ORDERS: dict[str, Call] = {
    "c": lambda a: a, "f": np.asfortranarray, "backwards": lambda a: a[::-1, ::-1], "transposed": lambda a: a.T.copy().T,
    "every other": lambda a: np.repeat(a, 2, 1)[:, ::2], "part": lambda a: np.pad(a, 2)[2:-2, 2:-2],
    "swapped": lambda a: a.astype(a.dtype.newbyteorder()), "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_orders(order: str, dtype: Any) -> None:
    a = ORDERS[order](drawn((4, 6), dtype))
    agrees(lambda a: (a * 1j, a.T + 1, a.sum(0), a[1:, ::2] * 2, -a.reshape(-1), a.real + 1), a, rtol=1e-5)


def test_sizes_and_ranks() -> None:
    call = pb.jit(lambda z: (z * 2j, abs(z), np.sum(z), np.conj(z), z.real))
    for shape in ((), (1,), (0,), (2, 0), (3, 1, 2), (1030,)):
        z = drawn(shape)
        for result, wanted in zip(call(z), (z * 2j, abs(z), np.sum(z), np.conj(z), np.real(z))):
            assert np.asarray(result).shape == np.asarray(wanted).shape
            np.testing.assert_allclose(result, wanted, rtol=1e-13)
    for z in (2 + 3j, np.complex64(1 - 2j), complex(-0.0, NAN)):
        assert type(pb.jit(lambda z: z * 2)(z)) is type(z)
        np.testing.assert_array_equal(pb.jit(lambda z: z.conjugate())(z), z.conjugate())


def test_constants_differ_by_the_signs_of_their_zeros() -> None:
    for count in (complex(7.5, 0.0), complex(7.5, -0.0), complex(-0.0, 7.5), complex(NAN, 1), complex(INF, -0.0)):
        result = pb.jit(lambda x, count=count: x + (x + count) * 0 + count)(0.0)
        np.testing.assert_array_equal(result, np.float64(0) + (0.0 + count) * 0 + count)
    one, other = pb.jit(lambda z: (np.log(z * complex(7.5, 0.0)), np.log(z + complex(7.5, -0.0))))(np.array([-1 - 0j]))
    assert np.isfinite(one).all() and np.isfinite(other).all()


def parts_written(z: Any) -> Any:
    z = z.copy()
    z.real[1:3] = 7
    z.imag = 2
    z[0] = 1j
    z.real *= 2
    view = z[::2]
    view.imag[...] += 5
    np.add.at(z, np.array([0, 0, 1]), 1j)
    return z


def argument_written(z: Any) -> Any:
    z[1] = 5j
    z.imag[2] = 9
    z[3:] *= 1j
    return np.sum(z)


def test_writes() -> None:
    agrees(parts_written, drawn((5,)))
    for order in (lambda z: z, lambda z: z[::-1], lambda z: np.repeat(z, 3)[::3]):
        arguments, wanted = order(drawn((5,))).copy(), order(drawn((5,))).copy()
        np.testing.assert_allclose(pb.jit(argument_written)(arguments), argument_written(wanted))
        np.testing.assert_array_equal(arguments, wanted)


def test_what_numpy_warns_of_and_refuses() -> None:
    z = drawn((3,))
    for call in (lambda z: z.astype(float), lambda z: np.asarray(z, dtype=np.float32), lambda z: z.astype(int)):
        with pytest.warns(np.exceptions.ComplexWarning):
            np.testing.assert_array_equal(pb.jit(call)(z), plain(call, z))
    for refused in (lambda z: np.floor(z), lambda z: z // 2, lambda z: z % 2, lambda z: np.arctan2(z, z), lambda z: np.floor(1j)):
        with pytest.raises(TypeError):
            plain(refused, z)
        with pytest.raises(TypeError):
            pb.jit(refused)(z)

    for refused in (lambda a: a < 2j, lambda a: a >= 1, lambda a: float(a), lambda a: int(a), lambda a: a // 2):
        with pytest.raises(TypeError):
            refused(1j)
        with pytest.raises(TypeError):
            pb.jit(refused)(1j)

    def stored(x: Any) -> Any:
        y = x.copy()
        y[0] = 1j
        return y

    for run in (stored, pb.jit(stored)):
        with pytest.raises(TypeError, match="not 'complex'"):
            run(np.zeros(3))


# gradients

LOSSES: dict[str, Call] = {
    "holomorphic": lambda z, w: np.sum(np.exp(z) * w / (z + 3) - z**3 + np.sqrt(z + 4) * np.tanh(w)).real,
    "parts": lambda z, w: np.sum(z.real * w.imag + np.abs(z * w) + np.angle(z) * np.conj(w).real + np.abs(z) ** 2),
    "statistics": lambda z, w: np.var(z) * np.std(w) + np.mean(z * w.conj()).imag + np.linalg.norm(z - w),
    "products": lambda z, w: (np.vdot(z, w) * np.prod(z) + np.cumprod(w)[-1] + (np.outer(z, w) @ w)[0]).real,
    "choices": lambda z, w: np.sum(np.where(z.real > 0, z * w, w.conj())).real + np.max(z).imag + np.sum(np.maximum(z, w)).imag,
    "moves": lambda z, w: np.sum(np.abs(np.concatenate([z[::2], w[np.array([0, 0])]]).reshape(2, -1).T * 1j) ** 3),
    "sign": lambda z, w: np.sum(np.sign(z) * w).real + np.sum(np.log(z) * np.arcsin(w * 0.1)).imag,
    "powers": lambda z, w: np.sum(z**w + z**2.5 + np.reciprocal(w)).real,
    "through complex": lambda z, w: np.sum(np.abs(np.exp(1j * z.real) + w.imag) ** 2),
    "casts": lambda z, w: np.sum(z.real.astype(complex) * w).real + np.sum(np.round(w, 2) * z).imag,
}


def differences(loss: Call, args: list[Any], step: float = 1e-6) -> list[Any]:
    """dL/dx - i dL/dy by each element."""
    result = []
    for k, a in enumerate(args):
        gradient = np.zeros(a.shape, a.dtype)
        for index in np.ndindex(a.shape):
            for unit in (1, 1j) if a.dtype.kind == "c" else (1,):
                values = []
                for sign in (1, -1):
                    moved = a.copy()
                    moved[index] += sign * step * unit
                    values.append(plain(loss, *(moved if j == k else other for j, other in enumerate(args))))
                gradient[index] += (values[0] - values[1]) / (2 * step) * np.conj(unit)
        result.append(gradient)
    return result


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_differences_by_both_parts(name: str) -> None:
    loss, args = LOSSES[name], [drawn((4,)), drawn((4,), seed=1)]
    value, gradients = pb.value_and_grad(loss, argnums=(0, 1))(*args)
    np.testing.assert_allclose(value, loss(*args), rtol=1e-12)
    for result, wanted in zip(gradients, differences(loss, args)):
        assert result.dtype == np.complex128
        np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=2e-7 * (1 + np.max(np.abs(wanted))))

    def second(z: Any, w: Any) -> Any:
        g = pb.grad(loss)(z, w)
        return np.sum(g.real * np.arange(1.0, 5.0) + np.sin(g.imag))

    result = pb.grad(second)(*args)
    if name != "casts":
        (wanted,) = differences(lambda z: pb.jit(second)(z, args[1]), args[:1])
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=2e-6 * (1 + np.max(np.abs(wanted))))


def test_the_convention() -> None:
    z, x = drawn((3,)), drawn((3,)).real
    np.testing.assert_allclose(pb.grad(lambda z: np.sum(np.abs(z) ** 2))(z), 2 * np.conj(z))
    gradient = pb.grad(lambda x: np.sum(np.exp(1j * x)).imag)(x)
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, np.cos(x))
    assert pb.grad(lambda z: np.sum(z).real)(z.astype(np.complex64)).dtype == np.complex64
    np.testing.assert_allclose(pb.holomorphic_grad(lambda z: np.sum(np.sin(z)))(z), np.cos(z))
    np.testing.assert_allclose(pb.holomorphic_grad(pb.holomorphic_grad(lambda z: z**3))(1 + 2j), 6 + 12j)


def test_points_where_formulas_break_down() -> None:
    zero = np.zeros(3, complex)
    for norm in (
        np.linalg.norm,
        lambda z: np.sqrt(np.sum(np.abs(z) ** 2)),
        lambda z: np.sqrt(np.sum((z * np.conj(z)).real)),
        lambda z: np.sqrt(np.vdot(z, z).real),
        lambda z: np.sum(np.abs(z)),
        lambda z: np.sum(np.sign(z)).real,
        np.std,
    ):
        np.testing.assert_array_equal(pb.grad(norm)(zero), zero)
    guarded = pb.grad(lambda z: np.sum(np.where(z.real > 0, np.log(z), 0)).real)
    np.testing.assert_allclose(guarded(np.array([0, 1 + 1j])), [0, 0.5 - 0.5j])


def test_what_is_differentiated_is_real() -> None:
    z = drawn((2,))
    for call, words in (
        (lambda: pb.grad(lambda z: np.sum(z))(z), "holomorphic_grad"),
        (lambda: pb.holomorphic_grad(lambda z: np.sum(np.abs(z)))(z), "result is of float64"),
        (lambda: pb.holomorphic_grad(lambda x: np.sum(x * 1j))(z.real), "argument x is of float64"),
    ):
        with pytest.raises(pb.TraceError, match=words):
            call()


def test_jacobians_and_tangents() -> None:
    z, x = drawn((3,)), drawn((3,)).real
    for jacobian in (pb.jacobian, pb.jacfwd, pb.jacrev):
        np.testing.assert_allclose(jacobian(lambda x: np.exp(1j * x))(x), np.diag(1j * np.exp(1j * x)), atol=1e-14)
        np.testing.assert_allclose(jacobian(lambda z: np.abs(z) ** 2)(z), np.diag(2 * np.conj(z)), atol=1e-14)
        np.testing.assert_allclose(jacobian(lambda z: z[0] * z[1])(z), [z[1], z[0], 0], atol=1e-14)
    t = drawn((3,), seed=5)
    value, tangent = pb.jvp(lambda z: np.abs(z) + z.imag, (z,), (t,))
    np.testing.assert_allclose(tangent, (np.conj(z) * t).real / np.abs(z) + t.imag)
    np.testing.assert_allclose(value, np.abs(z) + z.imag)
    np.testing.assert_allclose(pb.vmap(lambda z: np.vdot(z, z))(np.stack([z, t])), [np.vdot(z, z), np.vdot(t, t)])


def test_templates_serve_all_sizes() -> None:
    f = pb.jit(lambda z: np.sum(np.exp(z * (2.25 + 1.5j)) * z[::-1]))
    for n in (3, 4, 17, 100):
        z = drawn((n,), seed=n)
        np.testing.assert_allclose(f(z), np.sum(np.exp(z * (2.25 + 1.5j)) * z[::-1]), rtol=1e-11)


@pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
def test_cuda_c() -> None:
    text = """func f(%z: c128[300], %w: c128[300], %x: c64[7,5]) -> (c128[300], c128[300], c128[], f64[300], c64[5], bool[300]) {
      %0: c128[300] = mul %z, %w
      %1: c128[300] = div %0, %w
      %2: c128[300] = exp %1
      %3: c128[] = sum %2 {axes=[0]}
      %4: f64[300] = abs %0
      %5: c64[5] = sum %x {axes=[0]}
      %6: bool[300] = lt %z, %w
      %7: c128[300] = sqrt %z
      return %2, %7, %3, %4, %5, %6
    }"""
    function = parse_function(text)
    arguments = [drawn((300,)), drawn((300,), seed=1), drawn((7, 5), np.complex64)]
    for result, wanted in zip(run_on_host(function, arguments), expected(function, arguments), strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=1e-5 if wanted.dtype == np.complex64 else 1e-10)


def test_nothing_of_complex_arrays_is_copied() -> None:
    """A map over a complex array, in any layout, is one kernel that reads the array where it is."""
    for z in (drawn((4, 6)), np.asfortranarray(drawn((4, 6)))):
        program = pb.jit(lambda z: np.conj(z) * 2j).stages(z)["lower"]
        assert program.count("launch") == 1, program


def test_leaves_of_every_kind() -> None:
    arguments = {"a": drawn((2,)), "b": (1 + 2j, np.complex64(1j)), "c": [drawn((1,)), 1.0]}
    result = pb.jit(lambda t: np.sum(t["a"]) * t["b"][0] + t["b"][1] + t["c"][0] * t["c"][1])(arguments)
    np.testing.assert_allclose(result, np.sum(arguments["a"]) * (1 + 2j) + 1j + arguments["c"][0])
    gradient = pb.grad(lambda t: abs(np.sum(t["a"]) * t["b"][0] + t["b"][1]) ** 2)(arguments)
    assert gradient["a"].dtype == np.complex128 and gradient["b"][1].dtype == np.complex64
