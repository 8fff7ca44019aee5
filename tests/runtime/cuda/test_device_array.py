"""Arrays on a CUDA device, over the stand-in driver: as NumPy's, other libraries' arrays, memory, threads."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from scipy.special import shichi

import pullback as pb
from pullback.runtime.cuda.arrays import dlpack as cuda_dlpack
from pullback.runtime.cuda.device import device as cuda_device
from pullback.runtime.cuda.device import graphs as cuda_graphs
from tests import cuda_host
from tests.support.cuda.driver_stand_in import device, order

__all__ = ["device", "order"]


def test_a_device_array() -> None:
    host = np.arange(12.0).reshape(3, 4)
    x = pb.device_put(host)
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes, len(x), x.device) == ((3, 4), np.float64, 2, 12, 96, 3, "cuda:0")
    assert repr(x[0]) == "DeviceArray([0., 1., 2., 3.], dtype=float64, device='cuda:0')"
    assert float(x[1, 2]) == 6 and x[1, 2].item() == 6 and int(x[2, 0]) == 8 and bool(x[0, 1]) and x.tolist() == host.tolist()
    for result, wanted in [
        (x + host, host * 2), (host - x, host * 0), (2 / (x + 1), 2 / (host + 1)), (-x @ x.T, -host @ host.T), (x > 3, host > 3),
        (x[1:, ::2], host[1:, ::2]), (x[-1], host[-1]), (x[[0, 2]], host[[0, 2]]), (x[:, None].sum(2), host[:, None].sum(2)),
        (np.sin(x), np.sin(host)), (np.mean(x, axis=0), host.mean(axis=0)), (np.vstack([x, x]), np.vstack([host, host])),
        (x.astype("f4"), host.astype("f4")), (x.reshape(2, -1), host.reshape(2, -1)), (np.add.reduce(x), host.sum(axis=0)),
        (abs(x - 5), abs(host - 5)), (x**2, host**2), (x // 2, host // 2), (np.stack(list(x)), host),
    ]:  # fmt: skip
        assert isinstance(result, pb.DeviceArray)
        np.testing.assert_allclose(np.asarray(result), wanted)
        assert result.dtype == wanted.dtype
    with pytest.raises(TypeError, match="does not change"):
        x[0] = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, copy=False)
    assert f"{x[0, 1]:.2f}" == "1.00" and 3 in [int(v) for v in x[0]]


def test_put_and_get() -> None:
    tree = pb.device_put({"a": np.arange(3), "b": [np.float32(2), "text"]}, "cuda:1")
    assert tree["a"].device == "cuda:1" and tree["b"][0].dtype == np.float32 and tree["b"][1] == "text"
    back = pb.device_put(tree, "cpu")
    assert type(back["a"]) is np.ndarray and back["b"][0] == 2
    there = pb.device_put(tree["a"], "cuda:0")
    assert there.device == "cuda:0" and there.tolist() == [0, 1, 2]
    assert pb.device_put(there) is there
    large = np.random.default_rng(0).integers(0, 255, (3, 5_000_000), np.uint8)
    np.testing.assert_array_equal(pb.device_put(large).copy_to_host(), large)


def test_two_devices() -> None:
    f = pb.jit(lambda x, y: x + y)
    x = np.arange(3.0)
    one, two = pb.device_put(x, "cuda:0"), pb.device_put(x, "cuda:1")
    assert f(one, x).device == "cuda:0" and f(two, x).device == "cuda:1" and f(one, one).device == "cuda:0"
    assert isinstance(f(x, x), np.ndarray)
    with pytest.raises(ValueError, match=r"an argument is on cuda:1, and another on cuda:0; pass pb.device_put\(x, 'cuda:0'\)"):
        f(one, two)
    with pytest.raises(ValueError, match=r"an argument is on cuda:0, and the function is for cuda:1"):
        pb.jit(lambda x: x, device="cuda:1")(one)
    with pytest.raises(ValueError, match="copy_to_host"):
        pb.jit(lambda x: x, device="cpu")(one)
    with pytest.raises(pb.DeviceError, match="there is no cuda:7: this machine has CUDA devices cuda:0 to cuda:1"):
        pb.device_put(x, "cuda:7")
    with pytest.raises(ValueError, match='a device is "cpu", "cuda" or "cuda:N"'):
        pb.jit(lambda x: x, device="gpu")


W = pb.DeviceArray


def test_arrays_from_outside() -> None:
    """A global array on a device is an input that is read at each call, and says where the call runs."""
    f = pb.jit(lambda x: np.sum(x * W))
    x = np.arange(3.0)
    for value in (np.ones(3), pb.device_put(np.ones(3) * 2), pb.device_put(np.ones(3) * 5), np.ones(3) * 3,
                  pb.device_put(np.ones(3) * 7, "cuda:1"), pb.device_put(np.float64(2)), 4.0):  # fmt: skip
        globals()["W"] = value
        result = f(x)
        assert getattr(result, "device", "cpu") == getattr(value, "device", "cpu")
        assert float(result) == np.sum(x * np.asarray(value))


def test_a_part_of_a_buffer_is_where_it_is(device: cuda_device.Device) -> None:
    rows = pb.device_put(np.arange(6.0).reshape(2, 3))
    last = pb.DeviceArray(device, rows.address + 24, rows.dtype, (3,), rows.owner)
    turned, sums = pb.jit(lambda x: (x.reshape(3, 1), np.cumsum(x)))(last)
    np.testing.assert_array_equal(turned, [[3], [4], [5]])
    np.testing.assert_array_equal(sums, [3, 7, 12])


# other libraries


class Foreign:
    """An array of another library's, by ``__cuda_array_interface__``."""

    def __init__(self, array: pb.DeviceArray, **changed: Any) -> None:
        self.array = array
        self.interface = {k: v for k, v in {**array.__cuda_array_interface__, **changed}.items() if v != "none"}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


class Packed:
    """An array of another library's, by DLPack."""

    def __init__(self, array: pb.DeviceArray) -> None:
        self.array = array
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream)


Packed.__module__ = Foreign.__module__ = "library"


@pytest.mark.parametrize("stream", ["as it is", "none", None, 1, 2])
def test_arrays_of_other_libraries(order: None, stream: Any, device: cuda_device.Device) -> None:
    host = np.arange(12.0).reshape(3, 4)
    x = pb.device_put(host)
    changed = {} if stream == "as it is" else {"stream": stream}
    f = pb.jit(lambda x: x.sum(axis=1) * 2)
    result = f(Foreign(x, **changed))
    assert isinstance(result, pb.DeviceArray)
    np.testing.assert_allclose(result, host.sum(axis=1) * 2)
    turned = Foreign(x, shape=(4, 3), strides=(8, 32), **changed)
    np.testing.assert_allclose(f(turned), host.T.sum(axis=1) * 2)
    flat, same = pb.jit(lambda x: (x.ravel(), x))(Foreign(x, **changed))
    np.testing.assert_array_equal(flat, host.ravel())
    assert flat.address != x.address == same.address
    placed = pb.device_put(turned)
    assert placed.__cuda_array_interface__["data"] == x.__cuda_array_interface__["data"]
    np.testing.assert_array_equal(placed, host.T)


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize("is_ours", [True, False])
def test_the_parts_of_a_strided_complex_array_are_a_result(is_ours: bool, device: cuda_device.Device) -> None:
    host = np.arange(12.0).reshape(3, 4) + 1j
    x = pb.device_put(host)
    with device:
        turned = pb.device_put(Foreign(x, shape=(4, 3), strides=(16, 64)))
    if not is_ours:
        turned = Foreign(turned)
    wanted = np.stack([host.T.real, host.T.imag], axis=-1)
    f = pb.jit(lambda z: (np.stack([z.real, z.imag], axis=-1), np.conj(z)))
    for _ in range(3):
        for a, b in zip(f(turned), (wanted, host.T.conj()), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(pb.jit(lambda z: np.conj(np.conj(z)))(turned), host.T)
    np.testing.assert_allclose(pb.jit(lambda z: shichi(z[:, 1].real)[0])(turned), shichi(host.T[:, 1].real)[0])


def test_dlpack() -> None:
    host = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    arguments = Packed(pb.device_put(host))
    np.testing.assert_allclose(pb.jit(lambda x: x.sum(axis=1))(arguments), host.sum(axis=1))
    assert set(arguments.streams) == {cuda_device.device("cuda:0").stream.handle}
    taken, untaken = cuda_dlpack.ForeignTensor(arguments.array.__dlpack__(), None), arguments.array.__dlpack__()
    held = weakref.ref(arguments.array)
    del arguments, untaken
    gc.collect()
    assert held() is not None
    del taken
    gc.collect()
    assert held() is None


def test_a_stream_that_is_gone(device: cuda_device.Device) -> None:
    x = pb.device_put(np.arange(3.0))
    with pytest.raises(pb.DeviceError, match="the stream 0x1234, which an array says it is made on"):
        pb.jit(lambda x: x + 1)(Foreign(x, stream=0x1234))
    np.testing.assert_array_equal(x + 1, [1, 2, 3])


# memory


def test_buffers_are_used_again(device: cuda_device.Device) -> None:
    f = pb.jit(lambda x: np.sum(np.cumsum(np.cumsum(x * 2) * 3)) + x)
    x = pb.device_put(np.arange(1000.0))
    np.asarray(f(x)), np.asarray(f(x))
    before = cuda_host.counts()["bytes"]
    for _ in range(10):
        np.asarray(f(x))
    assert cuda_host.counts()["bytes"] == before
    pb.trim()
    assert cuda_host.counts()["bytes"] < before


@pytest.mark.long
def test_out_of_memory(device: cuda_device.Device) -> None:
    f = pb.jit(lambda x: np.cumsum(np.cumsum(x) * 2) * 3)
    x = pb.device_put(np.arange(100_000.0))
    wanted = np.asarray(f(x))
    pb.trim()
    with cuda_host.memory(0, cuda_host.counts()["bytes"] + 200_000):
        with pytest.raises(pb.DeviceMemoryError, match=r"no memory for result .* of lambda \(f64\[100000\]\), 800,000 bytes"):
            f(x)
        with pytest.raises(MemoryError, match="argument x of lambda"):
            pb.jit(lambda x: x.sum(), device="cuda")(np.zeros(200_000))
        assert float(pb.jit(lambda x: x.sum())(x)) == x.copy_to_host().sum()
    np.testing.assert_array_equal(f(x), wanted)


def test_arrays_die_in_any_thread(device: cuda_device.Device) -> None:
    x = pb.device_put(np.arange(1000.0))
    f = pb.jit(lambda x, k: x * k)
    failed: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(20):
                np.testing.assert_array_equal(np.asarray(f(x, k) + f(x, 1)), np.arange(1000.0) * (k + 1))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    held = [pb.device_put(np.zeros(10)) for _ in range(10)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    pb.trim()


def test_what_waits_for_the_whole_device_waits_for_a_capture(device: cuda_device.Device) -> None:
    """CUDA refuses to synchronize a context of which a stream is being captured, by whatever thread, and spoils the capture."""
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def capture() -> None:
        def work(stream: Any) -> None:
            begun.set()
            assert go_on.wait(60)

        with device:
            seen.append(cuda_graphs.captured(device, [work], [()]))

    class Silent:
        """An array that says nothing of its stream."""

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (3,), "typestr": "<f8", "version": 2, "data": (x.address, False)}

    x = pb.device_put(np.arange(3.0))
    np.asarray(x)
    capturing = threading.Thread(target=capture)
    capturing.start()
    assert begun.wait(60)
    adopting = threading.Thread(target=lambda: seen.append(pb.device_put(Silent())))
    adopting.start()
    adopting.join(0.2)
    assert adopting.is_alive()
    go_on.set()
    capturing.join()
    adopting.join()
    assert {type(result).__name__ for result in seen} == {"Graph", "DeviceArray"}
    np.testing.assert_array_equal(np.asarray(pb.jit(lambda x: x * 2)(x)), [0, 2, 4])


def test_an_error_while_another_thread_captures_does_not_end_the_device(device: cuda_device.Device) -> None:
    begun, go_on, raised = threading.Event(), threading.Event(), []

    def capture() -> None:
        def work(stream: Any) -> None:
            begun.set()
            assert go_on.wait(60)

        with device:
            cuda_graphs.captured(device, [work], [()])

    def err() -> None:
        try:
            with device:
                device.staging.download([(16, np.empty(3))])
        except pb.DeviceError as error:
            raised.append(error)

    threads = [threading.Thread(target=capture), threading.Thread(target=err)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.2)
    go_on.set()
    for each in threads:
        each.join()
    assert [type(error) for error in raised] == [pb.DeviceError]
    np.testing.assert_array_equal(np.asarray(pb.device_put(np.arange(3.0)) + 1), [1, 2, 3])
