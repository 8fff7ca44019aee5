"""Gradient inside a trace: the gradient of a function becomes one ``gradient`` instruction.

The function is traced in a frame of its own, whose region is closed: outer values that it reads become operands. The gradients
have the containers of their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import Identity, flatten, is_leaf, unflatten
from pullback.tracer.trace import Parameters, parameters_of
from pullback.tracer.transforms.container_arguments import ContainerArguments
from pullback.tracer.transforms.object_arguments import DifferentiatedArguments, is_differentiable_object
from pullback.tracer.transforms.region import Region, as_weak, restore, split_aux
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users_object

Argnums = int | Sequence[int] | None
Argnames = str | Iterable[str] | None


def _instead_of(value: Any) -> str:
    """Return advice on an argument without floats, for the message of an error."""
    kind = type(value).__name__
    if not is_users_object(value):
        return "choose another by argnums"
    registration = f"pb.tree.register({kind}, flatten, unflatten)"
    return f"make {kind} a dataclass, say what it holds by {registration}, or choose another by argnums"


def selected(
    parameters: Parameters, argnums: Argnums, argnames: Argnames, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[int | str], bool]:
    """Return the arguments to differentiate (positions and keywords), and whether the result is one gradient and not a tuple.

    Raises TraceError for an argument that the call has not.
    """
    if argnums is None and argnames is None:
        argnums = 0
    positions = [] if argnums is None else [argnums] if isinstance(argnums, int) else list(argnums)
    keywords = [] if argnames is None else [argnames] if isinstance(argnames, str) else list(argnames)
    chosen: list[int | str] = []
    for position in positions:
        if not -len(args) <= position < len(args):
            raise TraceError(
                f"argnums {position}, but the call has {len(args)} positional arguments; "
                "argnums counts them from 0, and argnames takes arguments by name"
            )
        chosen.append(position % len(args))
    for word in keywords:
        position = parameters.names.index(word) if word in parameters.names else len(args)
        if word not in kwargs and position >= len(args):
            names = ", ".join(dict.fromkeys((*parameters.names[: len(args)], *kwargs)))
            raise TraceError(f"argnames {word!r}, but the call has no such argument; it has {names or 'none'}")
        chosen.append(word if word in kwargs else position)
    if len(set(chosen)) < len(chosen):
        raise TraceError("argnums and argnames name an argument twice")
    single = (isinstance(argnums, int) and argnames is None) or (isinstance(argnames, str) and argnums is None)
    return chosen, single


def gradient_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, argnums: Argnums = None,
    argnames: Argnames = None, has_aux: bool = False,
) -> tuple[TracedArray, Any, Any]:  # fmt: skip
    """Call ``function`` in the current trace and differentiate its scalar result.

    Returns the value, the aux output (None without ``has_aux``) and the gradients: one tree shaped like the argument, or a
    tuple of them. Raises TraceError for a result that is not a float scalar and for arguments that are not floats.
    """
    kwargs = kwargs or {}
    parameters = parameters_of(function)
    chosen, single = selected(parameters, argnums, argnames, args, kwargs)
    region = Region()
    region.inner.is_straight = True
    containers = ContainerArguments(region)
    differentiated = DifferentiatedArguments(region, containers)
    new_args, new_kwargs = list(args), dict(kwargs)
    trees = []
    for which in chosen:
        label = parameters.name(which) if isinstance(which, int) else which
        value = args[which] if isinstance(which, int) else kwargs[which]
        if not is_differentiable_object(value) and flatten(value, key=Identity)[1].kind == "static":
            kind = type(value).__name__
            raise TraceError(f"argument {label} is of type {kind}: only floats can be differentiated; {_instead_of(value)}")
        replaced, tree, operands = differentiated.entered(value, label)
        if isinstance(which, int):
            new_args[which] = replaced
        else:
            new_kwargs[which] = replaced
        trees.append((tree, operands))
    rest: list[tuple[int | str, str, Any]] = [(k, parameters.name(k), x) for k, x in enumerate(args) if k not in chosen]
    rest += [(name, name, x) for name, x in kwargs.items() if name not in chosen]
    for which, label, value in rest:
        replaced = containers.passed(value, label)
        if isinstance(which, int):
            new_args[which] = replaced
        else:
            new_kwargs[which] = replaced
    containers.begin()
    with differentiated.replaced():
        value, aux = split_aux(region.call(function, new_args, new_kwargs), has_aux)
    with region.inner.active():
        value = _scalar(value)
    written = region.written()
    entered_values = {id(new): x for x, new in zip(region.operands, region.inside, strict=True)}
    names = {id(new) for _, new in written} | entered_values.keys()
    kept = [x for x in containers.values(aux) if id(x) not in names]
    closed = region.close([value, *kept, *(new for _, new in written)])
    count = 1 + len(kept)
    results = closed.emit("gradient", {"wrt": tuple(range(len(region.operands)))})
    outside = entered_values | restore(written, results[count : count + len(written)])
    outside |= {id(x): as_weak(new, x) for x, new in zip(kept, results[1:])}
    containers.store(outside)
    new_aux = containers.converted(aux)
    remaining = results[count + len(written) :]
    gradients = [unflatten(tree, [remaining[k] for k in operands]) for tree, operands in trees]
    return as_weak(results[0], value), new_aux, gradients[0] if single else tuple(gradients)


def _scalar(value: Any) -> TracedArray:
    """Return the result to differentiate. Raises TraceError unless it is a float scalar."""
    if not is_leaf(value):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise TraceError(f"the function to differentiate returned {kind}; return one float scalar (more by has_aux=True)")
    array = as_traced(value)
    if array.shape:
        raise TraceError(
            f"the function to differentiate returned an array of shape {array.shape}; return a scalar, as by .sum() or np.mean",
            array.loc,
        )
    if array.dtype.kind == "c":
        raise TraceError(
            f"the function to differentiate returned {array.dtype}; return a float, such as its real part or np.abs of it, "
            "or take pb.holomorphic_grad, if the function has a complex derivative",
            array.loc,
        )
    if not array.type.dtype.is_float:
        raise TraceError(f"the function to differentiate returned {array.dtype}; return a float", array.loc)
    return array
