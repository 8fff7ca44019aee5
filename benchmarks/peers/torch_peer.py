"""PyTorch: the same functions on tensors that share NumPy's memory; eager, and compiled in two ways.

`tcompile` compiles the function and differentiates it with autograd, `tcompile_fn` compiles `torch.func.grad_and_value` of it.
"""

import functools
import importlib
import os
import types
from collections.abc import Callable
from typing import Any

from benchmarks.case import Arguments, Case
from benchmarks.peers.retarget import retarget
from benchmarks.peers.unrolled import fori_loop, scan

Array = Any
Call = Callable[[], Any]
MOST_FORMS = 64
"""So many forms of a function are compiled in a process, of the cases of a workload; of more than 8 torch would compile none."""


def library() -> Any:
    torch = importlib.import_module("torch")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return torch


def compiled(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    importlib.import_module("torch._dynamo").config.recompile_limit = MOST_FORMS
    return torch.compile(function, dynamic=False)


def namespace(torch: Any) -> types.SimpleNamespace:
    """The NumPy names that the cases use, as PyTorch's functions."""

    def largest(x: Array, axis: Any, keepdims: bool = False) -> Array:
        return torch.amax(x, dim=axis, keepdim=keepdims)

    def zeros(shape: Any, dtype: Any) -> Array:
        return torch.zeros(shape, dtype=dtype)

    same = ("exp", "log", "sqrt", "sum", "mean", "arange", "tanh", "einsum", "cumsum", "positive", "zeros_like", "logaddexp")
    names = {name: getattr(torch, name) for name in same}
    names.update(
        max=largest,
        zeros=zeros,
        cumsum=functools.partial(torch.cumsum, dim=0),
        sort=lambda x: torch.sort(x).values,
        concatenate=lambda parts, axis: torch.cat(parts, dim=axis),
        maximum=lambda x, low: torch.clamp_min(x, low),
        logaddexp=lambda zero, z: torch.nn.functional.softplus(z),
    )
    return types.SimpleNamespace(**names)


def variants(torch: Any) -> dict[str, Callable[..., Any]]:
    """What a user of PyTorch writes instead."""
    functional = torch.nn.functional

    def layer_norm(x: Array, gain: Array, bias: Array, c: Array) -> Array:
        return functional.layer_norm(x, (x.shape[1],), gain, bias, 1e-5)

    def xent(z: Array, y: Array) -> Array:
        return functional.cross_entropy(z, y)

    def add_inside(u: Array, change: Array) -> Array:
        return u + functional.pad(change, (1, 1, 1, 1))

    def convolve(x: Array, w: Array) -> Array:
        return functional.conv2d(x, w, padding=1)

    def pool(x: Array) -> Array:
        return functional.max_pool2d(x, 2)

    return {"layer_norm": layer_norm, "xent": xent, "add_inside": add_inside, "convolve": convolve, "pool": pool}


def value_and_grad(torch: Any, function: Callable[..., Any], argnums: Any) -> Callable[..., Any]:
    both = torch.func.grad_and_value(function, argnums=argnums)

    def call(*arguments: Any) -> Any:
        gradients, value = both(*arguments)
        return value, gradients

    return call


def targeted(torch: Any, case: Case) -> Callable[..., Any]:
    shim = types.SimpleNamespace(
        value_and_grad=functools.partial(value_and_grad, torch),
        scan=functools.partial(scan, torch.stack),
        fori_loop=fori_loop,
    )
    replaced = variants(torch)
    if case.function.__name__ in replaced:
        return replaced[case.function.__name__]
    return retarget(case.function, {"np": namespace(torch), "erf": torch.erf, "pb": shim, **replaced})


def tree_map(torch: Any, function: Callable[..., Any], tree: Any) -> Any:
    return importlib.import_module("torch.utils._pytree").tree_map(function, tree)


def eager_call(torch: Any, function: Callable[..., Any], case: Case, arguments: Arguments) -> Call:
    """Value and gradients by autograd's tape, which PyTorch's users have by `backward`."""
    placed = list(tree_map(torch, torch.from_numpy, arguments))
    pytree = importlib.import_module("torch.utils._pytree")

    def call() -> Any:
        wanted = [tree_map(torch, lambda t: t.detach().requires_grad_(), placed[i]) for i in case.wanted]
        full = list(placed)
        for i, tensor in zip(case.wanted, wanted):
            full[i] = tensor
        value = function(*full)
        leaves, spec = pytree.tree_flatten(wanted)
        gradients = torch.autograd.grad(value, leaves)
        return value.detach().numpy(), tree_map(torch, lambda t: t.numpy(), pytree.tree_unflatten(list(gradients), spec))

    return call


def plain_call(torch: Any, function: Callable[..., Any], arguments: Arguments) -> Call:
    placed = tree_map(torch, torch.from_numpy, arguments)
    return lambda: tree_map(torch, lambda t: t.numpy(), function(*placed))


def prepare_torch(case: Case, arguments: Arguments) -> Call:
    torch = library()
    function = targeted(torch, case)
    return eager_call(torch, function, case, arguments) if case.wanted else plain_call(torch, function, arguments)


def prepare_tcompile(case: Case, arguments: Arguments) -> Call:
    torch = library()
    function = compiled(torch, targeted(torch, case))
    return eager_call(torch, function, case, arguments) if case.wanted else plain_call(torch, function, arguments)


def prepare_tcompile_fn(case: Case, arguments: Arguments) -> Call:
    torch = library()
    if not case.wanted:
        raise NotImplementedError("the same as tcompile")
    function = compiled(torch, value_and_grad(torch, targeted(torch, case), case.wanted))
    return plain_call(torch, function, arguments)
