"""``pb.torch``: NumPy functions in PyTorch programs. The module, and PyTorch with it, is imported when ``pb.torch`` is first
used."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pullback import tree
from pullback.compiled.bound_method import Method
from pullback.compiled.function import Jitted
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.tracer import TreeDef, current, flatten, rebuild
from pullback.tracer.arrays.tree import Identity, map_statics
from pullback.tracer.user_code.tracebacks import with_users_frames
from pullback.transforms.api import jit
from pullback.transforms.derivatives import vjp

if TYPE_CHECKING:
    from pullback.runtime.cuda.arrays import foreign as cuda_foreign
else:
    cuda_foreign = later("pullback.runtime.cuda.arrays.foreign")

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("pb.torch wraps functions for PyTorch, which is not installed here", name=error.name) from None

__all__ = ["wrap"]

DTYPES = {
    getattr(torch, name): np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    )
    if hasattr(torch, name)
}  # fmt: skip


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a NumPy function as a function of PyTorch tensors that supports ``backward``; also a decorator.

    ``function`` sees arrays that share the memory of the tensors. With tensors on a CUDA device the call runs there, in the order
    of PyTorch's current stream. Gradients reach the tensors that require them, on their devices; with ``create_graph`` they can
    be differentiated again, to any order. Complex gradients follow PyTorch's convention. The result of a function that returns
    one float is computed together with its gradient if PyTorch records gradients; for other functions ``backward`` recomputes
    what it needs of the value.

    Parameters
    ----------
    function : callable
        A NumPy function, which may already be compiled, as by ``pb.jit(static_argnames=...)``. It must not write into its
        arguments.

    Returns
    -------
    callable
        A function of tensors of any strides, alone or in tuples, lists, dicts, namedtuples and dataclasses, along with anything a
        compiled function takes. Each array or NumPy scalar in the result becomes a tensor that shares its memory; anything else
        is returned unchanged.

    Raises
    ------
    TypeError
        For a ``function`` that is not callable, and from a call, for tensors that are neither on the CPU nor on a CUDA device,
        sparse or quantised.
    ValueError
        From a call, if ``function`` writes into a tensor.
    TraceError
        From a call, for what cannot be compiled.

    See Also
    --------
    pullback.jit : For NumPy arrays.

    Examples
    --------
    >>> import torch
    >>> energy = pb.torch.wrap(lambda x, k: np.sum(k * x**2))
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> energy(x, 3.0).backward()
    >>> x.grad
    tensor([ 6., 12.])
    """
    if not callable(function):
        raise TypeError(f"pb.torch.wrap takes a function, got {type(function).__name__}")
    inner = _Wrapped(function if isinstance(function, Jitted | Method) else jit(function))

    @functools.wraps(function)
    @with_users_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return _opaque(inner, args, kwargs)
        return inner.function(*args, **kwargs) if current() is not None else inner(args, kwargs)

    return wrapped


@torch._disable_dynamo  # torch.compiler.disable would import the compiler with every import of this module
def _opaque(inner: _Wrapped, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call between the parts of a model that torch.compile compiles: its compiler does not inspect this one."""
    return inner(args, kwargs)


class _Wrapped:
    """A compiled function that takes and returns tensors. ``order``: how many times the wrapped function was differentiated."""

    def __init__(self, function: Callable[..., Any], order: int = 0) -> None:
        self.function = function
        self.order = order

    @functools.cached_property
    def pull(self) -> _Wrapped:
        """The gradients by some tensors, as returned by ``_pull_of``."""
        return _Wrapped(jit(_pull_of(self.function, self.order), static_argnames=["wanted", "floats"]), self.order + 1)

    @functools.cached_property
    def value_and_gradients(self) -> Callable[..., Any]:
        """The value, and the gradients if it is a single float."""
        return jit(_both_of(self.function, self.order), static_argnames=["wanted"])

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors: list[Any] = []

        def taken(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            tensors.append(value)
            return _Slot(self.order, len(tensors) - 1)

        arguments = _mapped((args, kwargs), taken)
        wanted = tuple(k for k, t in enumerate(tensors) if t.requires_grad) if torch.is_grad_enabled() else ()
        call = _Call(self, arguments, wanted)
        return call.filled(_Function.apply(call, *tensors) if wanted else call.run(tensors))


class _Slot:
    """The position of a tensor among the arguments of a function of some order of differentiation."""

    __slots__ = ("index", "order")

    def __init__(self, order: int, index: int) -> None:
        self.order = order
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Slot) and (other.order, other.index) == (self.order, self.index)

    def __hash__(self) -> int:
        return hash((self.order, self.index))


@dataclass(eq=False)
class _Call:
    """One call. ``arguments``: its positional and keyword arguments, with slots for its tensors, which PyTorch keeps.

    ``by``: the tensors whose gradients may be requested. After the function has run, ``result`` is the structure of its
    result, whose leaves at ``floats`` are differentiable; ``gradient``, for a function that returns one float, holds its
    gradient by each tensor in ``by``.
    """

    wrapped: _Wrapped
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    by: tuple[int, ...]
    result: TreeDef | None = None
    floats: tuple[int, ...] = ()
    gradient: dict[int, Any] = field(default_factory=dict)

    def run(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Run the function and return the tensors of the result."""
        arrays = [array_of(t) for t in tensors]
        if self.by:
            value, gradient = self.wrapped.value_and_gradients(arrays, self.arguments, wanted=self.by)
            self.gradient = {} if gradient is None else dict(zip(self.by, gradient, strict=True))
        else:
            args, kwargs = _filled(self.arguments, self.wrapped.order, arrays)
            value = self.wrapped.function(*args, **kwargs)
        leaves, self.result = flatten(value, key=Identity)
        self.floats = tuple(k for k, x in enumerate(leaves) if _is_float(x))
        return tuple(map(tensor_of, unshared(leaves, arrays)))

    def filled(self, tensors: Sequence[Any]) -> Any:
        """Return the result with tensors in place of its arrays."""
        assert self.result is not None
        return rebuild(self.result, list(tensors))

    def pulled(self, wanted: tuple[int, ...], tensors: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients by some of the tensors; differentiable if PyTorch records gradients."""
        chosen = [cotangents[k] for k in self.floats]
        if self.gradient and not torch.is_grad_enabled():
            gradients = [tensor_of(self.gradient[k]) * chosen[0] for k in wanted]
        else:
            named = {"wanted": wanted, "floats": self.floats}
            gradients = self.wrapped.pull((list(tensors), self.arguments, chosen), named)
        return [g.to(tensors[k].device) for k, g in zip(wanted, gradients, strict=True)]


class _Function(torch.autograd.Function):
    """A call as a node of PyTorch's autograd graph."""

    @staticmethod
    def forward(call: _Call, *tensors: Any) -> tuple[Any, ...]:
        return call.run(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.call, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*(t for k, t in enumerate(output) if k not in ctx.call.floats))

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        wanted = tuple(k - 1 for k, needs in enumerate(ctx.needs_input_grad) if needs)
        gradients: list[Any] = [None] * len(ctx.needs_input_grad)
        if wanted and ctx.call.floats:
            for k, gradient in zip(wanted, ctx.call.pulled(wanted, ctx.saved_tensors, cotangents), strict=True):
                gradients[k + 1] = gradient
        return tuple(gradients)


# PyTorch reads the signature at each call.
_Function.forward.__dict__["__signature__"] = inspect.signature(_Function.forward)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Replace each ``x`` in a tree that is not a container, array or number by ``change(x)``."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_mapped(x, change) for x in value])
    if kind is dict:
        return {k: _mapped(x, change) for k, x in value.items()}
    changed = change(value)
    if changed is not value or kind in _SIMPLE:
        return changed
    leaves, shape = flatten(value, key=Identity)
    return rebuild(map_statics(shape, change), leaves)


_SIMPLE = frozenset({bool, int, float, complex, str, type(None), np.ndarray, _Slot})


def _filled(tree: Any, order: int, values: Sequence[Any]) -> Any:
    """Return a tree with values in its slots of an order."""
    return _mapped(tree, lambda x: values[x.index] if isinstance(x, _Slot) and x.order == order else x)


# what is compiled


def _floats_by(
    function: Callable[..., Any], order: int, values: Sequence[Any], arguments: Any, wanted: tuple[int, ...]
) -> Callable[..., Any]:
    """Return ``function`` as a function of the chosen ``values`` alone, which returns the float leaves of its value, and the
    value."""

    def by(*chosen: Any) -> Any:
        args, kwargs = _filled(arguments, order, [dict(zip(wanted, chosen)).get(k, x) for k, x in enumerate(values)])
        value = function(*args, **kwargs)
        return [x for x in tree.leaves(value) if _is_float(x)], value

    return by


def _pull_of(function: Callable[..., Any], order: int) -> Callable[..., Any]:
    def pull(values: Any, arguments: Any, cotangents: Any, *, wanted: tuple[int, ...], floats: tuple[int, ...]) -> Any:
        by = _floats_by(function, order, values, arguments, wanted)
        _, back, _ = vjp(by, *[values[k] for k in wanted], has_aux=True)
        return tuple(_conjugate(g) for g in back([_conjugate(ct) for ct in cotangents]))

    return pull


def _both_of(function: Callable[..., Any], order: int) -> Callable[..., Any]:
    def both(values: Any, arguments: Any, *, wanted: tuple[int, ...]) -> Any:
        by = _floats_by(function, order, values, arguments, wanted)
        floats, back, value = vjp(by, *[values[k] for k in wanted], has_aux=True)
        if len(floats) != 1 or np.shape(floats[0]) != () or np.result_type(floats[0]).kind == "c":
            return value, None
        return value, tuple(_conjugate(g) for g in back([np.ones_like(floats[0])]))

    return both


def _is_float(x: Any) -> bool:
    """Return whether a leaf holds floats; NumPy's extension dtypes have kind "V"."""
    kind = x.dtype.kind if hasattr(x, "dtype") else np.dtype(type(x)).kind
    return kind in "fcV"


def _conjugate(x: Any) -> Any:
    """Convert a complex gradient to PyTorch's convention, the conjugate of this package's."""
    return np.conj(x) if np.result_type(x).kind == "c" else x


# tensors and arrays


def array_of(tensor: Any) -> Any:
    """Return the read-only array that shares a tensor's memory. Raises TypeError for tensors without one."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on {tensor.device}: pb.torch.wrap takes those on the CPU or CUDA devices; pass tensor.cpu()")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(
            f"a tensor of layout {tensor.layout}, dtype {tensor.dtype}: pb.torch.wrap takes dense tensors; pass a dense one"
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    if tensor.device.type == "cuda":
        return cuda_foreign.tensor(plain, DTYPES[plain.dtype], torch.cuda.current_stream(plain.device).cuda_stream)
    try:
        array = plain.view(torch.int16).numpy().view(_BFLOAT16) if plain.dtype is torch.bfloat16 else plain.numpy()
    except RuntimeError as error:
        raise TypeError(
            f"{error}: the tensor has no array; in place of torch.func.vmap and jvp write pb.vmap and pb.jvp inside the function"
        ) from None
    array.flags.writeable = False
    return array


def unshared(leaves: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Return results as arrays of which none shares memory with an argument or with another."""
    results: list[Any] = []
    for x in leaves:
        is_argument = any(x is a for a in arrays)
        if isinstance(x, Remote):
            results.append(x.copy() if is_argument or x.refusal() or any(x is a for a in results) else x)
        else:
            results.append(np.array(x) if is_argument else np.asarray(x))
    return results


def tensor_of(array: Any) -> Any:
    """Return the tensor that shares an array's memory."""
    if isinstance(array, Remote):
        return torch.from_dlpack(array)
    array = np.asarray(array)
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
