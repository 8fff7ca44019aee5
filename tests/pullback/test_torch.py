"""``pb.torch.wrap``: NumPy functions in PyTorch's record of gradients."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch", reason="torch is not installed; the bench extra has it")
gradcheck, gradgradcheck = torch.autograd.gradcheck, torch.autograd.gradgradcheck


class Pair(NamedTuple):
    value: Any
    place: Any


def draw(*shape: int, dtype: Any = None, grad: bool = True) -> Any:
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.rand(shape, generator=generator, dtype=dtype or torch.float64).add_(0.25).requires_grad_(grad)


def energy(x: Any, k: Any) -> Any:
    return np.sum(k * np.sin(x) ** 2)


def layer(x: Any, w: Any) -> Any:
    return np.tanh(x @ w)


def several(p: Any, n: Any) -> Any:
    h = np.tanh(p["w"] @ p["b"]) * n
    return h, Pair(np.sum(h**2), np.argmax(h)), "text"


def recurrent(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(w @ h + x)
        return h, h

    return pb.scan(step, xs[0], xs)[1]


def conjugated(z: Any, w: Any) -> Any:
    return np.exp(z) * np.conj(w) + np.abs(z) ** 2


# the function, its tensors
CHECKED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "a loss": (energy, lambda: (draw(5), draw(5))),
    "an array": (layer, lambda: (draw(4, 3), draw(3, 2))),
    "not contiguous": (layer, lambda: (draw(3, 4).detach().t().requires_grad_(), draw(6, 4).detach()[::2, 1:3].requires_grad_())),
    "rank 0": (lambda x: x**3, lambda: (draw(),)),
    "a subset": (energy, lambda: (draw(5, grad=False), draw(5))),
    "the other": (layer, lambda: (draw(4, 3), draw(3, 2, grad=False))),
    "twice the same": (lambda x, y: np.sum(x * y**2), lambda: (draw(4),) * 2),
    "a loop": (recurrent, lambda: (draw(3, 3), draw(4, 3))),
    "complex": (conjugated, lambda: (draw(3, dtype=torch.complex128), draw(3, dtype=torch.complex128))),
    "a complex loss": (lambda z: np.sum(np.abs(z) ** 2), lambda: (draw(3, dtype=torch.complex128),)),
    "mixed": (lambda x, z: (np.sum(x * z), np.sum(x**2)), lambda: (draw(3), draw(3, dtype=torch.complex128))),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKED)
def test_gradients_of_first_and_second_order(name: str) -> None:
    function, make = CHECKED[name]
    wrapped = pb.torch.wrap(function)
    assert gradcheck(wrapped, make())
    assert gradgradcheck(wrapped, make())


def test_expanded_tensors() -> None:
    wrapped = pb.torch.wrap(layer)
    assert gradcheck(lambda x, w: wrapped(x, w.expand(3, 2)), (draw(4, 3), draw(3, 1)))


def test_containers() -> None:
    wrapped = pb.torch.wrap(several)
    p = {"w": draw(4, 3), "b": draw(3)}
    h, pair, text = wrapped(p, 2.0)
    assert text == "text" and isinstance(pair, Pair)
    assert h.shape == (4,) and h.requires_grad and pair.value.requires_grad
    assert pair.place.dtype == torch.int64 and not pair.place.requires_grad
    expected = several({k: v.detach().numpy() for k, v in p.items()}, 2.0)
    np.testing.assert_allclose(h.detach().numpy(), expected[0])

    def flat(w: Any, b: Any) -> Any:
        h, pair, _ = wrapped({"w": w, "b": b}, n=2.0)
        return h, pair.value

    assert gradcheck(flat, (p["w"], p["b"])) and gradgradcheck(flat, (p["w"], p["b"]))


def test_against_the_same_in_pytorch() -> None:
    x, k = draw(50), draw(50)
    pb.torch.wrap(energy)(x, k).backward()
    mine = x.grad, k.grad
    x.grad = k.grad = None
    (k * torch.sin(x) ** 2).sum().backward()
    for result, expected in zip(mine, (x.grad, k.grad), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-14, atol=1e-15)


def test_inside_a_larger_program_and_any_order() -> None:
    cube = pb.torch.wrap(lambda x: x**3)
    x = draw()
    d = cube(2 * x).exp()
    e = torch.exp((2 * x) ** 3)
    for _ in range(3):
        (d,) = torch.autograd.grad(d, x, create_graph=True)
        (e,) = torch.autograd.grad(e, x, create_graph=True)
        torch.testing.assert_close(d, e, rtol=1e-12, atol=0)


def test_an_optimiser_of_pytorchs() -> None:
    x, y = draw(40, 3, grad=False), draw(40, grad=False)
    w = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    loss = pb.torch.wrap(lambda w, x, y: np.mean((x @ w - y) ** 2))
    optimiser = torch.optim.LBFGS([w], max_iter=50, tolerance_grad=1e-12, tolerance_change=0)

    def closure() -> Any:
        optimiser.zero_grad()
        value = loss(w, x, y)
        value.backward()
        return value

    optimiser.step(closure)
    torch.testing.assert_close(w.detach(), torch.linalg.lstsq(x, y[:, None]).solution[:, 0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_dtypes(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.arange(4).to(kind)
    result = pb.torch.wrap(lambda x: np.where(x > 0, x, x))(x)
    assert result.dtype == kind and torch.equal(result, x)
    if kind.is_floating_point:
        x.requires_grad_()
        pb.torch.wrap(lambda x: np.sum(x * x))(x).backward()
        assert x.grad.dtype == kind and torch.equal(x.grad, 2 * x.detach())


def test_memory_is_shared() -> None:
    x = draw(6, grad=False)
    seen = []

    def look(x: Any) -> Any:
        seen.append(x.ctypes.data)
        return x

    def f(x: Any) -> Any:
        return pb.callback(look, pb.ShapeDtypeStruct((6,), np.float64), x)

    assert pb.torch.array_of(x).ctypes.data == x.data_ptr()
    assert pb.torch.array_of(x[::2]).strides == (16,)
    built = np.arange(3.0)
    assert pb.torch.tensor_of(built).data_ptr() == built.ctypes.data
    assert torch.equal(pb.torch.wrap(f)(x), x) and seen
    conjugate = draw(3, dtype=torch.complex128).conj()
    np.testing.assert_array_equal(pb.torch.array_of(conjugate), conjugate.detach().resolve_conj().numpy())


def test_a_result_is_never_an_argument() -> None:
    x = draw(3, grad=False)
    result = pb.torch.wrap(lambda x: (x, x[:2], x))(x)
    for one in result:
        one.zero_()
    assert x.min() > 0 and len({t.data_ptr() for t in result}) == 3


def test_without_gradients() -> None:
    wrapped = pb.torch.wrap(energy)
    assert not wrapped(draw(3, grad=False), draw(3, grad=False)).requires_grad
    with torch.no_grad():
        assert not wrapped(draw(3), draw(3)).requires_grad
    assert wrapped(2.0, 3.0) == energy(2.0, 3.0)
    result = pb.torch.wrap(lambda x: np.argmax(x))(draw(3))
    assert not result.requires_grad
    assert pb.torch.wrap(lambda x: None)(draw(3)) is None


def test_what_nothing_depends_on_has_no_gradient_but_zero() -> None:
    x, y = draw(3), draw(3)
    gradients = torch.autograd.grad(pb.torch.wrap(lambda x, y: (np.sum(x), np.sum(x * y)))(x, y)[0], (x, y))
    assert torch.equal(gradients[0], torch.ones(3, dtype=torch.float64)) and torch.equal(gradients[1], torch.zeros_like(y))


def test_backward_twice_and_in_a_changed_tensor() -> None:
    wrapped = pb.torch.wrap(layer)
    x, w = draw(4, 3), draw(3, 2)
    y = wrapped(x, w).sum()
    y.backward(retain_graph=True)
    once = w.grad.clone()
    y.backward()
    torch.testing.assert_close(w.grad, 2 * once)
    y = wrapped(x, w).sum()
    with torch.no_grad():
        w.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_writes_into_tensors_are_refused() -> None:
    def f(x: Any) -> Any:
        x *= 2
        return np.sum(x)

    for x in (draw(3), draw(3, grad=False)):
        before = x.detach().clone()
        with pytest.raises(ValueError, match="read-only"):
            pb.torch.wrap(f)(x)
        assert torch.equal(x.detach(), before)


def test_compiled_functions_methods_and_decorators() -> None:
    class Model:
        def __init__(self) -> None:
            self.scale = 3.0

        def loss(self, x: Any) -> Any:
            return np.sum(self.scale * x**2)

    @pb.torch.wrap
    def f(x: Any) -> Any:
        """Doc."""
        return np.sum(x**2)

    x = draw(3)
    assert f.__doc__ == "Doc." and torch.equal(torch.autograd.grad(f(x), x)[0], 2 * x.detach())
    model = Model()
    torch.testing.assert_close(torch.autograd.grad(pb.torch.wrap(model.loss)(x), x)[0], 6 * x.detach())
    power = pb.torch.wrap(pb.jit(lambda x, n: np.sum(sum(x**k for k in range(n))), static_argnames="n"))
    torch.testing.assert_close(torch.autograd.grad(power(x, 3), x)[0], 1 + 2 * x.detach())
    torch.testing.assert_close(torch.autograd.grad(power(x, n=4), x)[0], 1 + 2 * x.detach() + 3 * x.detach() ** 2)
    assert pb.jit(lambda x: f(x) + 1)(np.ones(2)) == 3.0


def test_functional_gradients() -> None:
    x = draw(4, grad=False)
    wrapped = pb.torch.wrap(lambda x: np.sum(np.sin(x)))
    torch.testing.assert_close(torch.func.grad(wrapped)(x), torch.cos(x))
    with pytest.raises(TypeError, match=r"pb\.vmap"):
        torch.func.vmap(wrapped)(x)
    with pytest.raises(TypeError, match=r"pb\.jvp"):
        torch.func.jvp(wrapped, (x,), (x,))


def test_refusals() -> None:
    wrapped = pb.torch.wrap(energy)
    with pytest.raises(TypeError, match="on the CPU"):
        wrapped(torch.ones(3, device="meta"), 1.0)
    with pytest.raises(TypeError, match="dense"):
        wrapped(torch.eye(3).to_sparse(), 1.0)
    with pytest.raises(TypeError, match="takes a function"):
        pb.torch.wrap(3)
    with pytest.raises(ValueError, match="operands could not be broadcast"):
        wrapped(draw(3), draw(4))
    with pytest.raises(pb.TraceError, match=r"test_torch\.py"):
        pb.torch.wrap(lambda x: 1.0 if x[0] > 0 else 2.0)(draw(3))


def test_compiled_functions_take_tensors() -> None:
    x = draw(3, 4, grad=False)
    result = pb.jit(lambda x: 2 * x)(x.t())
    np.testing.assert_array_equal(result, 2 * x.numpy().T)
    assert torch.from_dlpack(result).data_ptr() == result.ctypes.data


def test_pytorch_is_imported_late() -> None:
    code = "import sys, pullback as pb; pb.jit(abs)(1.0); print('torch' in sys.modules); pb.torch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_calls_it_as_it_is(backend: str) -> None:
    """torch.compile compiles what is around the call, and does not look into it."""
    wrapped = pb.torch.wrap(layer)

    def model(x: Any, w: Any) -> Any:
        return (wrapped(x * 2, w).relu() ** 2).sum()

    def slopes(function: Any) -> list[Any]:
        x, w = draw(4, 3), draw(3, 2)
        value = function(x, w)
        value.backward()
        return [value.detach(), x.grad, w.grad]

    compiled = torch.compile(model, backend=backend)
    for _ in range(2):
        for result, expected in zip(slopes(compiled), slopes(model), strict=True):
            torch.testing.assert_close(result, expected)


def test_the_compiler_of_pytorch_is_imported_late() -> None:
    code = "import sys, pullback as pb; pb.torch; before = 'torch._dynamo' in sys.modules; import torch; print(before)"
    plain = "import sys, torch; print('torch._dynamo' in sys.modules)"
    done, expected = (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout for text in (code, plain)
    )
    assert done == expected
