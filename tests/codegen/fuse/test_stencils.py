"""Stencils: every natural way to write one, its gradient and its second derivative, at sizes around borders and vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.ir.core.structure import walk
from pullback.ir.ops.control.regions import Group
from pullback.ir.passes.pipeline import OPTIMIZE, run
from pullback.ir.shapes.extents import abstract
from pullback.ir.text import print_module
from pullback.tracer import flatten, trace
from tests.support.paths import GOLDEN
from tests.support.targets import assert_close, compiled, run_targets

Array = Any


def in_place(u: Array) -> Array:
    v = u.copy()
    v[1:-1, 1:-1] += 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1])
    return v


def set_inside(u: Array) -> Array:
    v = u.copy()
    v[1:-1, 1:-1] = 0.5 * (u[2:, 1:-1] - u[:-2, 1:-1]) * (u[1:-1, 2:] - u[1:-1, :-2])
    return v


def padded_after(u: Array) -> Array:
    return u + 0.5 * np.pad(u[2:, 1:-1] - u[:-2, 1:-1] + u[1:-1, 2:] * u[1:-1, :-2], 1)


def padded_before(u: Array) -> Array:
    p = np.pad(u, 1)
    return u + 0.5 * (p[2:, 1:-1] * u + p[:-2, 1:-1] + p[1:-1, 2:] - p[1:-1, :-2])


def edges_repeated(u: Array) -> Array:
    p = np.pad(u, 1, mode="edge")
    return 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] * p[1:-1, :-2])


def rolled(u: Array) -> Array:
    return u * (np.roll(u, 1, 0) + np.roll(u, -1, 0)) + np.roll(u, 2, 1) - np.roll(u, -1, 1)


def joined(u: Array) -> Array:
    rows = np.concatenate([u[-1:], u, u[:1]])
    return u + 0.5 * (rows[2:] - 2.0 * u + rows[:-2])


def rolled_flat(u: Array) -> Array:
    return u * np.roll(u, 1) - np.roll(u, -2) + np.roll(u, u.shape[-1] + 3)


def rolled_twice(u: Array) -> Array:
    v = np.roll(u, (1, -1), (0, 1)) - u * np.roll(np.roll(np.roll(u, 1, 0), 1, 0), 1, 0)
    return v + 0.5 * np.roll(v, -1, 0) * np.roll(v, 1, 1)


def rolled_far(u: Array) -> Array:
    return u * np.roll(u, u.shape[0] // 2, 0) + np.roll(u, 7, 1) * np.roll(u, -16, 1)


def rolled_by_a_value(u: Array) -> Array:
    count = np.sum(u > 0.5)
    return u * np.roll(u, count, 1) + np.roll(u, -3 * count) * np.roll(u, 1, 1)


def periodic(u: Array) -> Array:
    p = np.pad(u, 1, mode="wrap")
    return 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] * p[:-2, :-2] - p[1:-1, 1:-1])


def reflected(u: Array) -> Array:
    p = np.pad(u, 1, mode="reflect")
    return 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] * p[2:, :-2] - p[1:-1, 1:-1])


def nine_points(u: Array) -> Array:
    p = np.pad(u, 1, mode="edge")
    return sum((i + 2 * j - 2) * p[i : i + u.shape[0], j : j + u.shape[1]] for i in range(3) for j in range(3))


def borders_joined(u: Array) -> Array:
    v = u[1:-1] + 0.25 * (u[2:] - u[:-2])
    w = np.concatenate([v[:1], v, v[-1:]])
    return np.concatenate([np.zeros((u.shape[0], 1), u.dtype), w[:, 1:-1] * w[:, 2:], w[:, :1]], 1)


def one_axis(u: Array) -> Array:
    v = u.copy()
    v[1:-1] = 0.5 * (u[2:] + u[:-2])
    return v


def last_axis(u: Array) -> Array:
    v = u.copy()
    v[:, 2:] += 0.5 * u[:, :-2]
    v[:, :-1] -= u[:, 1:]
    return v


def wide(u: Array) -> Array:
    """Apply a stencil of fourth order along one axis and of second order along the other."""
    v = u.copy()
    v[2:-2, 1:-1] += (16.0 * (u[3:-1, 1:-1] + u[1:-3, 1:-1]) - u[4:, 1:-1] - u[:-4, 1:-1] - 30.0 * u[2:-2, 1:-1]) / 12.0
    v[2:-2, 1:-1] += 0.125 * u[2:-2, 2:] * u[2:-2, :-2]
    return v


def masked(u: Array) -> Array:
    v = u.copy()
    change = u[2:, 1:-1] + u[1:-1, :-2]
    v[1:-1, 1:-1] = np.where(u[1:-1, 1:-1] > 0.5, change, u[1:-1, 1:-1])
    return v


def with_a_wall(u: Array) -> Array:
    v = in_place(u)
    v[0] = v[1]
    v[:, -1] = 0.0
    return v


def in_zeros(u: Array) -> Array:
    v = np.zeros_like(u)
    v[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.25 * (u[2:, 1:-1] - u[:-2, 1:-1] + u[1:-1, 2:] * u[1:-1, :-2])
    return v


def in_a_constant(u: Array) -> Array:
    v = np.full(u.shape, -0.5, u.dtype)
    v[1:-1] = u[2:] * u[:-2]
    v[:, 0] = u[:, -1]
    return v


def inside_of_its_borders(u: Array) -> Array:
    v = u[1:-1, 1:-1] + 0.25 * (u[2:, 1:-1] - u[:-2, 1:-1] + u[1:-1, 2:] - u[1:-1, :-2])
    return np.concatenate([u[:1], np.concatenate([u[1:-1, :1], v, u[1:-1, -1:]], 1), u[-1:]])


def dear(u: Array) -> Array:
    return np.pad(np.exp(u[1:] - u[:-1]), ((1, 0), (0, 0))) + u


FORMS = [
    in_place, set_inside, padded_after, padded_before, edges_repeated, rolled, rolled_flat, rolled_twice, rolled_far,
    rolled_by_a_value, periodic, reflected, nine_points, borders_joined, joined, one_axis, last_axis, wide, masked,
    with_a_wall, in_zeros, in_a_constant, inside_of_its_borders, dear,
]  # fmt: skip
SHAPES = [(5, 5), (2, 2), (4, 35)]


def run_all(function: Callable[..., Any], argument: Array, ulps: float, note: object) -> None:
    """Every stage agrees with the interpreter."""
    traced = trace(function, (argument,), {})
    values = traced.arguments(flatten(((argument,), {}))[0])
    assert values is not None
    results = run_targets(traced.function, values)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for a, e in zip(result, expected, strict=True):
            assert_close(a, e, ulps, floor=1.0 if ulps else 0.0, note=f"{note} on {target}")


def fits(form: Callable[[Array], Array], shape: tuple[int, ...]) -> bool:
    try:
        return form(np.zeros(shape)).shape == shape
    except (ValueError, IndexError):
        return False


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_forms(form: Callable[[Array], Array]) -> None:
    """Values to the bit but for functions, gradients in dyadic numbers nearly so; second derivatives."""
    rng = np.random.default_rng(5)
    for shape in filter(lambda shape: fits(form, shape), SHAPES):
        u = np.round(rng.uniform(-2.0, 2.0, shape) * 8) / 8
        run_all(form, u, 4 if form is dear else 0, shape)
        weights = np.round(rng.uniform(-2.0, 2.0, shape) * 4) / 4

        def loss(u: Array, weights: Array = weights) -> Array:
            return np.sum(weights * form(u) * form(u))

        run_all(pb.grad(loss), u, 64, f"gradient {shape}")
        if shape == SHAPES[0]:
            run_all(lambda u, loss=loss: pb.jvp(pb.grad(loss), (u,), (u,))[1], u, 512, f"second derivative {shape}")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_special_values(form: Callable[[Array], Array]) -> None:
    """Elements outside are unchanged, even -0.0; a NaN reaches only its neighbours."""
    u = np.full((5, 21), -0.0)
    u[::2, ::5] = np.resize([np.nan, np.inf, -np.inf, 5e-324], u[::2, ::5].shape)
    run_all(form, u, 4 if form is dear else 0, "special values")


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool"])
def test_dtypes(dtype: str) -> None:
    rng = np.random.default_rng(6)
    u = (rng.uniform(0, 8, (7, 37)) // 1).astype(dtype)

    def form(u: Array) -> Array:
        v = u.copy()
        v[1:-1, 2:] = u[2:, 2:] | u[1:-1, :-2] if dtype == "bool" else u[2:, 2:] + u[1:-1, :-2]
        return v

    run_all(form, u, 0, dtype)


def test_layouts() -> None:
    rng = np.random.default_rng(7)
    whole = rng.uniform(size=(40, 60))
    for u in (whole[::2, ::3], whole.T, whole[::-1, 5:29], np.broadcast_to(whole[0], (9, 60))):
        for form in (in_place, padded_before, rolled):
            run_all(form, u, 0, u.strides)


@pytest.mark.parametrize("shape", [(9,), (1,), (2,), (70,), (3, 4, 11)])
def test_other_ranks(shape: tuple[int, ...]) -> None:
    def form(u: Array) -> Array:
        p = np.pad(u, 1)
        inner = (slice(1, -1),) * u.ndim
        total = -2.0 * u.ndim * u
        for axis in range(u.ndim):
            for part in (slice(2, None), slice(None, -2)):
                total = total + p[(*inner[:axis], part, *inner[axis + 1 :])]
        return u + 0.125 * total

    u = np.random.default_rng(8).uniform(size=shape)
    run_all(form, u, 0, shape)
    run_all(pb.grad(lambda u: np.sum(form(form(u)) ** 2)), u, 64, shape)


def steps(form: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda u: np.sum(pb.fori_loop(0, 3, lambda i, u: form(u), u) ** 2)


@pytest.mark.parametrize("form", [in_place, padded_after, padded_before, rolled], ids=lambda form: form.__name__)
def test_a_step_is_one_group(form: Callable[[Array], Array]) -> None:
    """A step of a loop and a step of its reverse are one kernel each, with nothing but the array in memory."""
    linear = {padded_after: lambda u: u + np.pad(u[2:, 1:-1] - u[1:-1, :-2], 1), padded_before: lambda u: padded_linear(u)}
    linear[rolled] = lambda u: np.roll(u, 1, 0) - np.roll(u, -1, 1)
    function = steps(linear.get(form, form))
    traced = trace(pb.value_and_grad(function), (np.ones((8, 9)),), {})
    fused = compiled(traced.function).fused
    bodies = [i.regions[0] for i in fused.instructions if i.op.name == "scan"]
    assert len(bodies) == 2
    for body in bodies:
        assert [type(i.op) for i in body.instructions] == [Group]


def linear_in_zeros(u: Array) -> Array:
    v = np.zeros_like(u)
    v[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.25 * (u[2:, 1:-1] - u[1:-1, :-2])
    return v


@pytest.mark.parametrize("form", [in_place, linear_in_zeros, one_axis])
def test_a_step_and_its_gradient_are_one_group_each(form: Callable[[Array], Array]) -> None:
    """Nothing is stored but the array after the step and the gradient."""
    traced = trace(pb.grad(lambda u: np.sum(form(u) ** 2)), (np.ones((8, 9)),), {})
    assert [type(i.op) for i in compiled(traced.function).fused.instructions if i.op.name != "const"] == [Group, Group]


def test_the_rows_inside_of_borders_run_in_parallel() -> None:
    scheduled = compiled(trace(inside_of_its_borders, (np.ones((300, 300)),), {}).function).scheduled
    (kernel,) = (f.body for f in scheduled.functions[1:])
    rows = [i for i in kernel.instructions if i.op.name == "for" and sum(k.op.name == "for" for k in walk(i.regions[0])) > 1]
    assert [i.params["map"] for i in rows] == ["core"]


def heat(*neighbours: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda u: u + 0.25 * (sum(f(u) for f in neighbours) - len(neighbours) * u)


def joined_heat(u: Array) -> Array:
    rows = np.concatenate([u[-1:], u[:-1]]) + np.concatenate([u[1:], u[:1]])
    columns = np.concatenate([u[:, -1:], u[:, :-1]], 1) + np.concatenate([u[:, 1:], u[:, :1]], 1)
    return u + 0.25 * (rows + columns - 4.0 * u)


def padded_heat(mode: str) -> Callable[[Array], Array]:
    def form(u: Array) -> Array:
        p = np.pad(u, 1, mode=mode)
        return u + 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u)

    return form


HEAT = {
    "roll": heat(*(functools.partial(np.roll, shift=d, axis=k) for d in (1, -1) for k in (0, 1))),
    "flat": heat(*(functools.partial(np.roll, shift=d) for d in (1, -1))),
    "joined": joined_heat,
    **{mode: padded_heat(mode) for mode in ("wrap", "edge", "reflect", "symmetric", "constant")},
}


@pytest.mark.parametrize("name", HEAT)
def test_the_inside_of_a_step_selects_nothing(name: str) -> None:
    """However the borders are written, most points of a step, and of a step of its reverse, are computed from plain loads: of
    the point and of its neighbours."""
    traced = trace(pb.value_and_grad(steps(HEAT[name])), (np.ones((80, 90)),), {})
    scheduled = compiled(traced.function).scheduled
    kernels = [f.body for f in scheduled.functions[1:]]
    loads = []
    for kernel in kernels:
        loops = [i for i in walk(kernel) if i.op.name == "for" and i.params.get("multiple")]
        names = [[k.op.name for k in i.regions[0].instructions] for i in loops]
        loads += [n.count("load") for n in names if not {"select", "load_if"}.intersection(n)]
    assert loads == [3 if name == "flat" else 5] * 2


def padded_linear(u: Array) -> Array:
    p = np.pad(u, 1)
    return u + 0.5 * (p[2:, 1:-1] - p[1:-1, :-2])


def test_scheduled_text_is_the_expected_one(bless: bool) -> None:
    path = GOLDEN / "lowered" / "stencil.ir"
    result = compiled(trace(one_axis, (np.ones((8, 9)),), {}).function)
    text = print_module(result.scheduled)
    if bless:
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_repeated_stencils_do_not_multiply(rank: int) -> None:
    """Each of many consecutive stencils is computed at few offsets: kernels grow at most linearly with their number."""

    def form(u: Array) -> Array:
        p = np.pad(u, 1)
        inner = (slice(1, -1),) * u.ndim
        sides = slice(2, None), slice(None, -2)
        parts = [(*inner[:axis], side, *inner[axis + 1 :]) for axis in range(u.ndim) for side in sides]
        return u + 0.125 * sum(p[part] for part in parts)

    def largest(times: int) -> int:
        function = trace(lambda u: functools.reduce(lambda u, _: form(u), range(times), u), (np.ones((7,) * rank),), {}).function
        fused = fuse(run(abstract(function).function, OPTIMIZE))
        stages = lower(fused, ["c"] * len(fused.parameters))
        return max(sum(1 for _ in walk(kernel.body)) for kernel in stages.functions[1:])

    assert largest(9) <= 4 * largest(3) <= 6000


@pytest.mark.parametrize("size", range(6))
def test_sizes_around_borders(size: int) -> None:
    """Parts are empty, or all there is."""
    for shape in ((size,), (size, 3), (2, size), (size, size)):
        u = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
        for form in (one_axis, in_place, padded_before, rolled, rolled_flat, edges_repeated, periodic, reflected, borders_joined):
            if fits(form, shape):
                run_all(form, u, 0, f"{form.__name__} {shape}")


def test_elements_written_in_place_stay_so() -> None:
    """A few elements, or a border, that do not come of the array around them, are written where they are."""

    def few(u: Array, x: Array) -> Array:
        return pb.fori_loop(0, 3, lambda i, u: write(u, x), u)

    def write(u: Array, x: Array) -> Array:
        u = u.copy()
        u[3:5] = x[:2] * x[1:]
        u[0] = 2.0 * u[1] - u[2]
        return u

    traced = trace(few, (np.ones(20), np.ones(3)), {})
    scan = next(i for i in compiled(traced.function).fused.instructions if i.op.name == "scan")
    assert [i.op.name for i in scan.regions[0].instructions if i.op.name != "group"] == ["slice_set", "scatter_set"]


def windows_added(x: Array, k: int) -> Array:
    y = np.zeros(len(x) + 10)
    for i in range(len(x)):
        y[i : i + k] += x[i] / k
    return y


def windows_of_ten_scaled(x: Array, k: int) -> Array:
    y = np.concatenate([x, x])
    for i in range(0, len(x), k):
        y[i : i + 10] = 0.5 * y[i : i + 10] - y[i]
    return y


def blocks_centred(x: Array, k: int) -> Array:
    y = x.copy()
    for i in range(0, len(x) - k + 1, k):
        y[i : i + k] = y[i : i + k] - y[i : i + k].max()
    return y


def windows_shifted(x: Array, k: int) -> Array:
    """The part that is read begins before the one that is written."""
    y = x.copy()
    for i in range(1, len(x) - k):
        y[i : i + k] = 0.5 * (y[i - 1 : i + k - 1] + y[i + 1 : i + k + 1])
    return y


def eliminated(x: Array, k: int) -> Array:
    a = np.outer(x, x[::-1]) + len(x) * np.eye(len(x))
    for j in range(len(x) - 1):
        a[j + 1 :, j] /= a[j, j]
        a[j + 1 :, j + 1 :] -= np.outer(a[j + 1 :, j], a[j, j + 1 :])
    return a


@pytest.mark.parametrize("form", [windows_added, windows_of_ten_scaled, blocks_centred, windows_shifted, eliminated])
def test_moving_parts_are_written_where_they_are(form: Callable[[Array, int], Array]) -> None:
    rolled = pb.jit(form, loops="roll")
    for n, k in ((30, 3), (50, 7), (241, 10)):
        x = np.random.default_rng(n).normal(size=n)
        assert np.allclose(rolled(x, k), form(x, k), rtol=1e-14, atol=1e-14)
    text = str(rolled.stages(np.arange(1.0, 401.0), 10)["fuse"])
    body = text[text.index(" scan ") :]
    assert "slice_set" in body or "slice_add" in body
    assert "pad " not in body
    pb.check_grad(lambda x: np.sum(np.sin(form(x, 3))))(np.random.default_rng(1).normal(size=12))
