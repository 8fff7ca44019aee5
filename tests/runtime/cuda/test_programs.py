"""Programs on a CUDA device, run by the real PyCUDA over the stand-in driver, give what they do on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from benchmarks.case import Case
from pullback.runtime.cuda.device import device as cuda_device
from pullback.runtime.cuda.program.executable import CudaExecutable
from pullback.tracer import flatten, unflatten
from tests import cuda_host
from tests.pullback.test_random import OF_SHAPE
from tests.repository.test_benchmarks import PAIRS
from tests.runtime.cuda.test_user_programs import close, compiled
from tests.support.cuda.driver_stand_in import device, order
from tests.tables.control_programs import PROGRAMS

__all__ = ["device", "order"]
SMALL = [pair for pair in PAIRS if "sort" not in str(pair.id)]


def both(call: Callable[..., Any], *args: Any) -> None:
    """A call gives on the device what it does on the CPU: with NumPy's arrays NumPy's, with arrays there such arrays."""
    wanted = [np.asarray(leaf) for leaf in flatten(pb.jit(call)(*args))[0]]
    with pytest.MonkeyPatch.context() as patch:
        # Buffer by buffer, so that each ends at a page that cannot be touched.
        patch.setattr(CudaExecutable, "uses_plans", False)
        leaves = flatten(pb.jit(call, device="cuda")(*args))[0]
    assert not any(isinstance(leaf, pb.DeviceArray) for leaf in leaves)
    close([np.asarray(leaf) for leaf in leaves], wanted)
    result, tree = flatten(args)
    arguments = unflatten(tree, [pb.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in result])
    leaves = flatten(pb.jit(call)(*arguments))[0]
    if any(isinstance(leaf, pb.DeviceArray) for leaf in flatten(arguments)[0]):
        assert all(isinstance(leaf, pb.DeviceArray) or not np.ndim(leaf) for leaf in leaves)
    native = [leaf.astype(leaf.dtype.newbyteorder("=")) for leaf in wanted]
    close([np.asarray(leaf) for leaf in leaves], native)


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_control_flow(name: str) -> None:
    call, args = PROGRAMS[name]
    both(call, *args)


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize(("case", "dtype"), SMALL)
def test_workloads_of_the_benchmarks(case: Case, dtype: str) -> None:
    both(compiled(case), *case.make(np.dtype(dtype).type, **case.small))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_derivatives_of_layers_keep_their_digits(dtype: Any) -> None:
    """tanh and its derivative follow from what a layer keeps: at small and large arguments, zeros of either sign, infinities and
    NaN."""
    far = np.geomspace(1, 400, 101)
    points = np.linspace(-1, 1, 201), far, -far, np.geomspace(1e-30, 1, 31), [0.0, -0.0, np.inf, -np.inf, np.nan]
    x = np.concatenate(points).astype(dtype)[:, None, None]

    def layers(x: Any, w: Any, v: Any, c: Any) -> Any:
        return np.sum(np.tanh(x @ w) @ v * c)

    v = np.tile(np.array([[1, 0]], dtype), (len(x), 1, 1))
    arguments = x, np.ones((1, 1), dtype), v, np.ones_like(v)
    on_cpu, on_device = (pb.jit(pb.value_and_grad(layers, argnums=(0, 2)), device=d) for d in ("cpu", "cuda"))
    info = np.finfo(dtype)
    for result, wanted in zip(on_device(*arguments)[1], on_cpu(*arguments)[1], strict=True):
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=8 * float(info.eps), atol=2 * float(info.smallest_subnormal))
    text = on_device.stages(*arguments)["cuda"]
    assert text.count("pb_tanh_tail(") == 2 and "pb_sech2" not in text


@pytest.mark.parametrize("name", sorted(OF_SHAPE))
def test_random_numbers_are_the_same(name: str) -> None:
    both(lambda key: OF_SHAPE[name](key, s=(2, 50)), pb.random.key(3))


def test_steps_follow_each_other_however_the_device_runs_them(order: None) -> None:
    rng = np.random.default_rng(0)
    w, x, y = rng.normal(size=(30, 8)), rng.normal(size=(200, 30)), rng.normal(size=(200, 8))

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        z = z - np.max(z, axis=1, keepdims=True)
        return -np.mean(np.sum(y * (z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))), axis=1))

    step = pb.value_and_grad(loss)
    placed, host = pb.device_put(w), w
    data = pb.device_put((x, y))
    for _ in range(5):
        value, gradient = step(placed, *data)
        wanted, expected = step(host, x, y)
        placed, host = placed - 0.1 * gradient, host - 0.1 * expected
        np.testing.assert_allclose(float(value), wanted, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(placed), host, rtol=1e-11)


def test_calls_that_come_again_are_one_launch_of_a_graph(order: None, device: cuda_device.Device) -> None:
    rng = np.random.default_rng(0)
    w, x, y = [rng.normal(size=(6, 6)) for _ in range(3)], rng.normal(size=(8, 6)), rng.normal(size=(8, 6))

    def loss(w: Any, x: Any, y: Any) -> Any:
        for each in w:
            x = np.tanh(x @ each)
        return np.mean((x - y) ** 2)

    @pb.jit
    def step(w: Any, x: Any, y: Any, rate: Any) -> Any:
        value, gradient = pb.value_and_grad(loss)(w, x, y)
        return value, [each - rate * d for each, d in zip(w, gradient, strict=True)]

    placed, data, host = pb.device_put(w), pb.device_put((x, y)), w
    for k in range(12):
        before = cuda_host.counts()["graph_launches"]
        rate = 0.1 if k < 10 else np.random.default_rng().random()
        value, placed = step(placed, *data, rate)
        wanted, host = step(host, x, y, rate)
        assert (cuda_host.counts()["graph_launches"] > before) is (5 < k < 10) or k < 6
        np.testing.assert_allclose(float(value), wanted, rtol=1e-11)
    np.testing.assert_allclose(placed[0], host[0], rtol=1e-10)


def test_graphs_are_told_apart_by_all_that_they_keep(device: cuda_device.Device) -> None:
    f = pb.jit(lambda x, k: np.cumsum(x[:2] * k) / np.cumsum(x)[:2])
    x = pb.device_put(np.full(4, np.inf))
    for k in (0.0, 0.0, 0.0, -0.0, 2.0, 2.0, 2.0):
        f(x, k)
    g = pb.jit(lambda x, k: np.cumsum(np.copysign(np.cumsum(x)[:1], k)))
    ones = pb.device_put(np.ones(3))
    assert [float(g(ones, k)[0]) for k in (0.0, 0.0, 0.0, -0.0, 0.0, -0.0)] == [1, 1, 1, -1, 1, -1]


def test_a_result_that_is_not_asked_for_is_not_waited_for(device: cuda_device.Device) -> None:
    x = pb.device_put(np.arange(1000.0))
    double = pb.jit(lambda x: x * 2)
    double(x)
    device.synchronize()
    results = [double(x) for _ in range(3)]
    assert cuda_host.counts()["waiting"] >= 3
    np.testing.assert_array_equal(np.asarray(results[2]), np.arange(1000.0) * 2)


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
def test_layouts_and_dtypes() -> None:
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float16, np.int8, np.uint64, np.bool_, np.complex64, ">f8"):
        x = (rng.normal(size=(6, 10)) * 5).astype(dtype)
        both(lambda x: (x, x.T, x[::-2, 3], np.where(x != 0, x, x)), x)
        both(lambda x: (x[1:4, ::3] == 2, x.ravel()), np.asfortranarray(x)[::-1])


def test_empty_arrays_and_scalars() -> None:
    both(lambda x: (x + 1, x.sum(), np.concatenate([x, x])), np.zeros((0, 3)))
    both(lambda x, k: (x * k, k, x), np.float64(2.5), 3)
    both(lambda x: (x, x * 1j, 3.0), np.array(1 - 2j))
    assert pb.jit(lambda: np.arange(3.0), device="cuda")().tolist() == [0, 1, 2]


def test_results_that_are_arguments() -> None:
    x = np.arange(4.0)
    placed = pb.device_put(x)
    both(lambda x: (x, x, x + 0, (x * 2, x)), x)
    assert pb.jit(lambda x: x)(placed) is placed
    kept, again = pb.jit(lambda x: (x.reshape(2, 2), x + 1))(placed)
    np.testing.assert_array_equal(kept, x.reshape(2, 2))
    np.testing.assert_array_equal(again, x + 1)


def test_what_jit_offers(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(0.1, 1, 7)
    placed = pb.device_put(x)

    def f(x: Any) -> Any:
        return np.sum(np.sin(x) ** 2)

    bent = pb.grad(pb.grad(lambda a: f(a * np.ones(3))))
    np.testing.assert_allclose(bent(pb.device_put(0.3)), bent(0.3))
    np.testing.assert_allclose(pb.hessian(f)(placed), pb.hessian(f)(x), atol=1e-15)
    np.testing.assert_allclose(pb.jvp(f, (placed,), (placed,))[1], pb.jvp(f, (x,), (x,))[1])
    np.testing.assert_allclose(pb.vmap(pb.grad(f))(placed.reshape(7, 1)), pb.vmap(pb.grad(f))(x.reshape(7, 1)))
    inner = pb.jit(f)
    np.testing.assert_allclose(pb.jit(lambda x: inner(x) * 2, device="cuda:0")(placed), f(x) * 2)
    assert pb.jit(lambda x, n: x.reshape(n), static_argnames="n")(placed, (7, 1)).shape == (7, 1)
    np.testing.assert_array_equal(pb.jit(lambda s, g: s - g, donate="s", device="cuda")(x.copy(), x), x * 0)
    np.testing.assert_array_equal(pb.jit(lambda s, g: s - g, donate="s")(placed, placed), x * 0)
    out = np.empty(7)
    assert pb.jit(np.exp, device="cuda").into(out, x) is out
    np.testing.assert_allclose(out, np.exp(x))
    np.testing.assert_allclose(pb.jit(np.exp, device="cuda", debug=True)(placed), np.exp(x))
    with pytest.raises(FloatingPointError, match="log"):
        pb.jit(lambda x: np.log(x - 5), device="cuda", debug=True)(x)

    @pb.jit(guards=True)
    def branching(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else -x

    for sign in (1, -1, 1):
        np.testing.assert_array_equal(branching(placed * sign), branching(x * sign))

    @pb.jit
    def printing(x: Any) -> Any:
        pb.print("sum", x.sum())
        return x

    printing(placed)
    assert "sum 3.8" in capsys.readouterr().out


def test_a_function_that_writes() -> None:
    def f(a: Any) -> Any:
        a[1:] *= 2
        return a.sum()

    a = np.arange(4.0)
    assert pb.jit(f, device="cuda")(a) == 12
    np.testing.assert_array_equal(a, [0, 2, 4, 6])
    with pytest.raises(pb.TraceError, match="argument a is an array on a device"):
        pb.jit(f)(pb.device_put(a))


def test_checks_name_the_line_and_leave_all_as_it_is() -> None:
    take = pb.jit(lambda x, i: x[i] * 2)
    x = pb.device_put(np.arange(5.0))
    assert float(take(x, 4)) == 8
    with pytest.raises(IndexError, match=r"index 5 is out of bounds for axis 0 with size 5\n.*test_programs.py"):
        take(x, 5)
    turns = pb.jit(lambda x, n: pb.fori_loop(0, n, lambda i, s: s + x[i], 0.0))
    with pytest.raises(IndexError, match="index 5 is out"):
        turns(x, 7)
    assert float(turns(x, 5)) == 10


def test_the_cpu_does_what_has_no_cuda() -> None:
    a, b = np.eye(4) * 3 + 1, np.arange(4.0)
    with pytest.warns(pb.DeviceWarning, match=r"on cuda:0: geev .*; the CPU does it"):
        result = pb.jit(lambda a, b: np.linalg.eigvals(a) * b, device="cuda")(a, b)
    np.testing.assert_allclose(result, np.linalg.eigvals(a) * b)


def test_explain_says_where() -> None:
    a, b = np.eye(4) * 3 + 1, np.arange(4.0)
    f = pb.jit(lambda a, b: np.linalg.eigvals(a) * b * 3)
    placed = pb.device_put(a)
    before = f.explain(placed, b)
    assert before.device == "cuda:0" and "a: f64[4,4] on cuda:0" in str(before) and "runs on cuda:0" in str(before)
    with pytest.warns(pb.DeviceWarning):
        f(placed, b)
    after = f.explain(placed, b)
    assert after.is_compiled and any("geev" in what and "test_programs.py" in what for what in after.on_cpu)
    assert "the CPU does, on copies: geev" in str(after)
    assert f.explain(a, b).device == "cpu"
    assert {"trace", "lower", "schedule", "cuda"} <= set(pb.jit(lambda x: x * 2).stages(placed))
    assert f.cost(placed, b).launches and f.memory(placed, b)


def test_a_number_that_was_given_is_a_result(device: cuda_device.Device) -> None:
    """What is left of some results is an argument, or a captured number, that no kernel sees."""
    f = pb.jit(lambda x, b: (np.sum(x * 2), b * 1, np.negative(-b), np.sum(x)), device="cuda")
    for b in (np.float64(2.5), np.float32(2.5), 2.5, np.array(2.5)):
        for x in (np.arange(3.0), pb.device_put(np.arange(3.0))):
            result = f(x, b)
            assert [float(v) for v in result] == [6, 2.5, 2.5, 3]
            assert [np.asarray(v).dtype for v in result] == [np.dtype(float), *[np.asarray(b).dtype] * 2, np.dtype(float)]
    value, gradient = pb.jit(pb.value_and_grad(lambda s, c: s * c), device="cuda")(2.0, 3.0)
    assert (value, gradient) == (6.0, 3.0) and type(gradient) is np.float64
    assert pb.jit(pb.grad(lambda s, c: s * c), device="cuda")(2.0, 3.0) == 3.0


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
def test_steps_of_the_cpu_see_arrays_with_strides_as_they_are(device: cuda_device.Device) -> None:
    """And leave the memory around them alone, which another library may be at work with."""
    wide = np.random.default_rng(0).uniform(0.5, 1.5, (9, 14))
    base = pb.device_put(wide)

    class Strided:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            data, strides = (base.address + (2 * 14 + 12) * 8, False), (-8, 2 * 14 * 8)
            return {"shape": (7, 4), "typestr": "<f8", "version": 3, "stream": None, "strides": strides, "data": data}

    x = wide[2::2, 12:5:-1].T
    assert x.shape == (7, 4)

    def call(x: Any) -> Any:
        told = pb.callback(lambda x: np.sin(x), x, x)
        return scipy.special.i1e(x) + x.T.sum(), np.linalg.solve(x.T @ x, x[0]), told

    wanted = call(x)
    result = pb.jit(call)(Strided())
    for a, b in zip(result, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(base), wide)
