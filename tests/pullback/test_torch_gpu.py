"""``pb.torch.wrap`` with tensors on a GPU."""

from __future__ import annotations

import pytest

import pullback as pb

torch = pytest.importorskip("torch", reason="torch is not installed; the bench extra has it")

from tests.pullback.test_torch import CHECKED, draw, energy  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch here finds no CUDA device"),
]


@pytest.mark.parametrize("name", ["a loss", "an array", "not contiguous", "rank 0", "a loop", "complex"])
def test_gradients(name: str) -> None:
    function, make = CHECKED[name]
    tensors = [t.detach().cuda().requires_grad_(t.requires_grad) for t in make()]
    assert torch.autograd.gradcheck(pb.torch.wrap(function), tensors)
    assert torch.autograd.gradgradcheck(pb.torch.wrap(function), tensors)


def test_the_current_stream() -> None:
    x, k = draw(5).detach().cuda().requires_grad_(), draw(5).detach().cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        moved = x * 2
        value = pb.torch.wrap(energy)(moved, k)
        moved.detach().zero_()
    side.synchronize()
    assert value.device == x.device
    torch.testing.assert_close(value, torch.sum(k * torch.sin(2 * x) ** 2))


def test_gradients_are_where_tensors_are() -> None:
    x, mixed = draw(5).detach().cuda().requires_grad_(), draw(5)
    value = pb.torch.wrap(energy)(x, mixed)
    assert value.is_cuda
    value.backward()
    assert mixed.grad.device.type == "cpu" and x.grad.device.type == "cuda"


def test_no_copies() -> None:
    x = torch.arange(12.0, device="cuda").reshape(3, 4)
    assert pb.device_put(x).address == x.data_ptr()
    y = pb.device_put(x.t()) * 2
    assert torch.from_dlpack(y).data_ptr() == y.address
    torch.testing.assert_close(torch.from_dlpack(y), x.t() * 2)
