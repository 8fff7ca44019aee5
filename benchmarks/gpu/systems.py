"""The systems that are compared on a GPU: one function each that prepares a case.

Arguments are on the device before anything is timed, and results stay there. Libraries are imported late: any may be absent.
"""

import functools
import importlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.cases import Arguments, GpuCase
from benchmarks.peers import jax_peer, torch_peer
from benchmarks.peers.retarget import retarget
from benchmarks.peers.unrolled import fori_loop, scan

Array = Any


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """``call()`` puts work on the device and gives its results; ``wait`` waits for all of it; ``fetch`` gives them as NumPy's."""

    call: Callable[[], Any]
    wait: Callable[[], Any]
    fetch: Callable[[Any], Any]


def prepare_pullback(case: GpuCase, arguments: Arguments) -> Prepared:
    pb: Any = importlib.import_module("pullback")
    cuda = importlib.import_module("pullback.runtime.cuda.device.device")
    call = pb.value_and_grad(case.function, argnums=case.wanted) if case.wanted else pb.jit(case.function)
    placed = pb.device_put(arguments)

    def fetch(results: Any) -> Any:
        leaves, tree = pb.tree.flatten(results)
        return pb.tree.unflatten(tree, [leaf.copy_to_host() if isinstance(leaf, pb.DeviceArray) else leaf for leaf in leaves])

    return Prepared(call=lambda: call(*placed), wait=lambda: cuda.device("cuda:0").synchronize(), fetch=fetch)


def prepare_jax(case: GpuCase, arguments: Arguments) -> Prepared:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    names = {
        "np": importlib.import_module("jax.numpy"),
        "pb": types.SimpleNamespace(scan=jax.lax.scan, fori_loop=jax.lax.fori_loop),
        **jax_peer.variants(jax),
    }
    function = names.get(case.function.__name__) or retarget(case.function, names)
    compiled = jax.jit(jax.value_and_grad(function, argnums=case.wanted) if case.wanted else function)
    placed = jax.device_put(arguments, jax.devices("gpu")[0])
    last: list[Any] = []

    def call() -> Any:
        last[:] = [compiled(*placed)]
        return last[0]

    return Prepared(call=call, wait=lambda: jax.block_until_ready(last), fetch=jax.device_get)


def _torch(case: GpuCase, arguments: Arguments, compiled: bool, **options: Any) -> Prepared:
    torch = importlib.import_module("torch")
    torch.set_default_device("cuda")
    pytree = importlib.import_module("torch.utils._pytree")
    shim = types.SimpleNamespace(scan=functools.partial(scan, torch.stack), fori_loop=fori_loop)
    own = torch_peer.variants(torch)
    function = own.get(case.function.__name__) or retarget(case.function, {"np": torch_peer.namespace(torch), "pb": shim, **own})
    if compiled:
        function = torch.compile(function, dynamic=False, **options)
    placed = [torch.from_numpy(x).cuda() for x in arguments]

    def call() -> Any:
        if not case.wanted:
            with torch.no_grad():
                return function(*placed)
        full = list(placed)
        for k in case.wanted:
            full[k] = placed[k].detach().requires_grad_()
        value = function(*full)
        return value.detach(), torch.autograd.grad(value, [full[k] for k in case.wanted])

    def fetch(results: Any) -> Any:
        return pytree.tree_map(lambda t: t.cpu().numpy(), results)

    return Prepared(call=call, wait=torch.cuda.synchronize, fetch=fetch)


def prepare_torch(case: GpuCase, arguments: Arguments) -> Prepared:
    return _torch(case, arguments, compiled=False)


def prepare_tcompile(case: GpuCase, arguments: Arguments) -> Prepared:
    return _torch(case, arguments, compiled=True)


def prepare_treduce(case: GpuCase, arguments: Arguments) -> Prepared:
    """torch.compile that captures CUDA graphs, which pays for small programs alone."""
    if "small" not in case.name and "lstm" not in case.name:
        raise NotImplementedError("for small programs")
    return _torch(case, arguments, compiled=True, mode="reduce-overhead")


def prepare_cupy(case: GpuCase, arguments: Arguments) -> Prepared:
    cupy = importlib.import_module("cupy")
    if case.wanted:
        raise NotImplementedError("has no gradients")
    function = retarget(case.function, {"np": cupy})
    if case.name == "elementwise":
        function = cupy.fuse(function)
    placed = [cupy.asarray(x) for x in arguments]
    return Prepared(call=lambda: function(*placed), wait=cupy.cuda.get_current_stream().synchronize, fetch=cupy.asnumpy)


SYSTEMS: dict[str, Callable[[GpuCase, Arguments], Prepared]] = {
    "pullback": prepare_pullback,
    "torch": prepare_torch,
    "tcompile": prepare_tcompile,
    "treduce": prepare_treduce,
    "jax": prepare_jax,
    "cupy": prepare_cupy,
}
"""Triton is what torch.compile writes for these programs: no kernel of its own is needed to compare with it."""
