"""Transforms of functions inside a trace: the gradient of a function becomes one ``gradient`` instruction.

The function runs in a frame of its own, whose region is closed: outer values it reads become operands. The gradients
have the containers of the arguments they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pullback.ir import OPS
from pullback.tracer.array import TracedArray, as_traced, root_of, wrap, write_back
from pullback.tracer.errors import TraceError, user_loc
from pullback.tracer.frame import Frame, current, frame_of
from pullback.tracer.names import Names
from pullback.tracer.trace import Parameters, check_leaf, parameters_of
from pullback.tracer.tree import TreeDef, flatten, is_leaf, map_statics, paths, unflatten

Argnums = int | Sequence[int] | None
Argnames = str | Iterable[str] | None


def follow(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function as it runs inside the current trace; see ``names``. Raises TraceError outside a trace."""
    names = frame_of().root.names
    assert isinstance(names, Names)
    found: Callable[..., Any] = names.follow(function)
    return found


def rebuild(tree: TreeDef, leaves: Sequence[Any]) -> Any:
    """``unflatten``; in a trace, with classes and functions of the user's as the trace has them."""
    frame = current()
    if frame is not None:
        names = frame.root.names
        tree = map_statics(tree, names.follow, names.shadow)
    return unflatten(tree, leaves)


def selected(
    parameters: Parameters, argnums: Argnums, argnames: Argnames, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[int | str], bool]:
    """The arguments to differentiate: positions and keywords, and whether the answer is one gradient and not a tuple.

    Raises TraceError for one that the call has not.
    """
    if argnums is None and argnames is None:
        argnums = 0
    positions = [] if argnums is None else [argnums] if isinstance(argnums, int) else list(argnums)
    words = [] if argnames is None else [argnames] if isinstance(argnames, str) else list(argnames)
    found: list[int | str] = []
    for position in positions:
        if not -len(args) <= position < len(args):
            raise TraceError(
                f"argnums {position}, but the call has {len(args)} positional arguments; "
                "argnums counts them from 0, and argnames takes arguments by name"
            )
        found.append(position % len(args))
    for word in words:
        position = parameters.names.index(word) if word in parameters.names else len(args)
        if word not in kwargs and position >= len(args):
            names = ", ".join(dict.fromkeys((*parameters.names[: len(args)], *kwargs)))
            raise TraceError(f"argnames {word!r}, but the call has no such argument; it has {names or 'none'}")
        found.append(word if word in kwargs else position)
    if len(set(found)) < len(found):
        raise TraceError("argnums and argnames name an argument twice")
    single = (isinstance(argnums, int) and argnames is None) or (isinstance(argnames, str) and argnums is None)
    return found, single


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
    outer = frame_of()
    inner = Frame(outer)
    new_args, new_kwargs = list(args), dict(kwargs)
    operands: list[TracedArray] = []
    inside: list[TracedArray] = []
    trees = []
    names = outer.root.names
    for which in chosen:
        label = parameters.name(which) if isinstance(which, int) else which
        leaves, tree = flatten(args[which] if isinstance(which, int) else kwargs[which])
        if tree.kind in ("static", "named"):
            kind = type(tree.data).__name__
            raise TraceError(f"argument {label} is of type {kind}: only floats can be differentiated; choose another by argnums")
        traced = [_differentiable(leaf, path) for leaf, path in zip(leaves, paths(tree, label), strict=True)]
        tree = map_statics(tree, names.argument, names.shadow)
        parameters_inside = [_parameter(inner, x) for x in traced]
        replaced = unflatten(tree, parameters_inside)
        names.effects.watch_argument(replaced, label)
        if isinstance(which, int):
            new_args[which] = replaced
        else:
            new_kwargs[which] = replaced
        operands.extend(traced)
        inside.extend(parameters_inside)
        trees.append(tree)
    with inner.active():
        result = follow(function)(*new_args, **new_kwargs)
        value, aux = _split(result, has_aux)
        aux_leaves, aux_tree = flatten(aux, static_numbers=True)
        value = _scalar(value)
        changed = _written(inner, operands, inside)
        given = {id(new): target for target, new in changed}
        kept = [x for x in aux_leaves if isinstance(x, TracedArray) and x.frame is inner and id(x) not in given]
        returned = [value, *kept, *(new for _, new in changed)]
        block = inner.builder.block(inner.parameters, [inner.lift(x) for x in returned])
    loc = user_loc()
    values = [outer.lift(x, loc) for x in operands] + inner.outer
    params = {"wrt": tuple(range(len(operands)))}
    results = [wrap(v) for v in outer.builder.at(loc).emit(OPS["gradient"], values, params, [block])]
    for (target, _), new in zip(changed, results[1 + len(kept) : len(returned)], strict=True):
        write_back(target, new)
    outside_of = given | {id(x): new for x, new in zip(kept, results[1:])}
    new_aux = unflatten(aux_tree, [outside_of.get(id(x), x) for x in aux_leaves])
    rest = results[len(returned) :]
    gradients = []
    for tree in trees:
        gradients.append(unflatten(tree, rest[: tree.count]))
        rest = rest[tree.count :]
    return results[0], new_aux, gradients[0] if single else tuple(gradients)


def _differentiable(leaf: Any, label: str) -> TracedArray:
    """A leaf of an argument to differentiate."""
    if not isinstance(leaf, TracedArray):
        check_leaf(leaf, f"argument {label}")
    found = as_traced(leaf)
    if found.dtype.kind in "iub":
        kind = f"a Python {found.weak}" if found.weak else f"of dtype {found.dtype}"
        instead = "a float, such as 3.0 for 3" if found.weak else "floats, as by .astype(float)"
        raise TraceError(f"argument {label} is {kind}: only floats can be differentiated; pass {instead}")
    return found


def _parameter(inner: Frame, x: TracedArray) -> TracedArray:
    name = x.value.name if x.literal is None else ""
    made = TracedArray(x.type, inner, inner.parameter(x.type, name), weak=x.weak, readonly=x.readonly, loc=x.loc)
    made.origin, made.created = x.origin, x.is_cell
    if x.origin is not None and x.origin.kind == "argument":
        made.origin = x.origin._replace(kind="differentiated")
    return made


def _written(
    inner: Frame, operands: Sequence[TracedArray], inside: Sequence[TracedArray]
) -> list[tuple[TracedArray, TracedArray]]:
    """Arrays of the outer frames that the function wrote, and what stands for their new values.

    Raises TraceError for an array that the function wrote under one name and read under another.
    """
    found = [(x, new) for x, new in zip(operands, inside, strict=True) if new.version]
    outside = [x for x in inner.written.values() if x.frame is inner]
    roots = [id(root_of(x)) for x in operands]
    for k, (x, new) in enumerate(zip(operands, inside, strict=True)):
        shared = roots.count(roots[k]) > 1 or inner.has_read(root_of(x)) or inner.has_read(x)
        if (new.version and shared) or any(id(root_of(w)) == roots[k] for w in outside):
            raise TraceError(
                f"an array that is differentiated ({x!r}) is written under one name and used under another; pass a copy"
            )
    for view in (x for x in outside if x.base is not None):
        view.seen = -1
    return found + [(x, x) for x in outside if x.base is None]


def _split(result: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        kind = repr(result) if isinstance(result, TracedArray) else f"a {type(result).__name__}"
        raise TraceError(
            f"has_aux wants a pair (value, aux), and the function returned {kind}; write return value, aux, or leave has_aux out"
        )
    return result


def _scalar(value: Any) -> TracedArray:
    """The result to differentiate."""
    if not is_leaf(value):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise TraceError(f"the function to differentiate returned {kind}; return one float scalar (more by has_aux=True)")
    found = as_traced(value)
    if found.shape:
        raise TraceError(
            f"the function to differentiate returned an array of shape {found.shape}; return a scalar, as by .sum() or np.mean",
            found.loc,
        )
    if found.dtype.kind != "f":
        raise TraceError(f"the function to differentiate returned {found.dtype}; return a float", found.loc)
    return found
