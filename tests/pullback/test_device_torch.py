"""``pb.torch.wrap`` with tensors on a CUDA device: on a GPU with PyTorch; and, where there is none, its code with arrays of the
stand-in in place of tensors' memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.cuda.arrays import foreign as cuda_foreign
from pullback.runtime.cuda.device.device import Device
from tests import cuda_host
from tests.support.cuda.driver_stand_in import device, order

torch = pytest.importorskip("torch", reason="torch is not installed; the bench extra has it")

from tests.pullback.test_torch import CHECKED, draw, layer  # noqa: E402

__all__ = ["device", "order"]


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """CPU tensors are taken to be on the device: their arrays are copies there. The results that became tensors."""
    built: list[Any] = []
    array_of, tensor_of = pb.torch.array_of, pb.torch.tensor_of

    def tensor(array: Any) -> Any:
        built.append(array)
        return tensor_of(np.array(array))

    monkeypatch.setattr(pb.torch, "array_of", lambda t: pb.device_put(np.array(array_of(t))))
    monkeypatch.setattr(pb.torch, "tensor_of", tensor)
    yield built
    assert built and all(isinstance(a, pb.DeviceArray) for a in built), "a result came to the host"


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize("name", ["a loss", "an array", "rank 0", "twice the same", "a loop", "complex", "mixed"])
def test_gradients(name: str, there: list[Any]) -> None:
    function, make = CHECKED[name]
    before = cuda_host.counts()["launches"]
    assert torch.autograd.gradcheck(pb.torch.wrap(function), make())
    assert torch.autograd.gradgradcheck(pb.torch.wrap(function), make())
    assert cuda_host.counts()["launches"] > before


def test_training(there: list[Any]) -> None:
    x, result = draw(40, 3, grad=False), []
    for function in (pb.torch.wrap(layer), lambda x, w: torch.tanh(x @ w)):
        w = draw(3, 2)
        optimizer = torch.optim.SGD([w], lr=1.0)
        for _ in range(5):
            optimizer.zero_grad()
            ((function(x, w) - 0.3) ** 2).mean().backward()
            optimizer.step()
        result.append(w)
    torch.testing.assert_close(*result)


def test_results_have_memory_of_their_own(there: list[Any]) -> None:
    x = draw(6, grad=False)
    result = pb.torch.wrap(lambda x: (x, (y := x * 2), y, y.reshape(2, 3)))(x)
    assert [tuple(t.shape) for t in result] == [(6,), (6,), (6,), (2, 3)]
    addresses = [a.address for a in there]
    assert len(set(addresses)) == 4


class Tensor:
    """What PyTorch's tensors on a device have, over memory of the stand-in."""

    def __init__(self, array: pb.DeviceArray, count: int = 0, transposed: bool = False) -> None:
        self.array = array
        self.device = type("device", (), {"index": count, "type": "cuda"})
        self.shape = array.shape[::-1] if transposed else array.shape
        self.steps = [1]
        for n in reversed(array.shape[1:]):
            self.steps.insert(0, self.steps[0] * n)
        if transposed:
            self.steps.reverse()

    def data_ptr(self) -> int:
        return self.array.address

    def stride(self) -> tuple[int, ...]:
        return tuple(self.steps)


def test_memory_and_strides_of_a_tensor() -> None:
    host = np.arange(6.0).reshape(2, 3)
    memory = pb.device_put(host)
    whole = cuda_foreign.tensor(Tensor(memory), np.dtype(float), 0)
    turned = cuda_foreign.tensor(Tensor(memory, transposed=True), np.dtype(float), 0)
    assert whole.address == turned.address == memory.address and whole.strides is None
    np.testing.assert_array_equal(np.asarray(turned), host.T)
    np.testing.assert_allclose(np.asarray(pb.jit(lambda x: np.cumsum(x, axis=0))(turned)), np.cumsum(host.T, axis=0))


def test_the_order_of_a_stream_of_pytorch(order: None, device: Device) -> None:
    """A call reads what the stream has written before, and what the stream writes afterwards comes after the call."""
    import pycuda.driver as cuda

    memory, once, again = (pb.device_put(np.full(500, float(k))) for k in range(3))
    device.synchronize()
    with device:
        stream = cuda.Stream(1)
        cuda.memcpy_dtod_async(memory.address, once.address, 4000, stream)
    result = pb.jit(lambda x: x * 2)(cuda_foreign.tensor(Tensor(memory), np.dtype(float), stream.handle))
    with device:
        cuda.memcpy_dtod_async(memory.address, again.address, 4000, stream)
        stream.synchronize()
        del stream
    np.testing.assert_array_equal(np.asarray(result), np.full(500, 2.0))
    np.testing.assert_array_equal(np.asarray(memory), np.full(500, 2.0))


def test_dtypes() -> None:
    assert pb.torch.DTYPES[torch.bfloat16].name == "bfloat16" and pb.torch.DTYPES[torch.complex64] == np.complex64
    with pytest.raises(TypeError, match=r"a tensor on meta: .* takes those on the CPU or CUDA devices"):
        pb.torch.wrap(np.sin)(torch.empty(3, device="meta"))
