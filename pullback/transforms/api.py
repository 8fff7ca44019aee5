"""The main transforms: ``jit``, ``grad`` and ``value_and_grad``.

A transformed function is traced at the first call of a signature and runs compiled from then on. Transforms compose in any
order. Every outside value that a program depends on is read or checked at each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from pullback.checking.check_mode import Checked
from pullback.checking.debug_mode import Debugged, DebuggedAndChecked
from pullback.checking.plain_mode import Plain
from pullback.checking.verify_mode import Verified
from pullback.compiled.function import Jitted, transformed
from pullback.compiled.transform import Argnames, Argnums, Gradient, Transform, checked_argnames, checked_argnums
from pullback.ir.core.environment import is_jit_disabled
from pullback.programs.donation import donation
from pullback.runtime.cuda.driver.driver import checked
from pullback.tracer.user_code.tracebacks import with_users_frames
from pullback.transforms.guards_mode import Guarded

P = ParamSpec("P")
R = TypeVar("R")
Aux = TypeVar("Aux")
Donate = int | str | Iterable[int | str]

# The class of a compiled function by ``(debug, check)``.
KINDS: dict[tuple[bool, bool], type[Jitted[..., Any]]] = {
    (False, False): Jitted, (False, True): Checked, (True, False): Debugged, (True, True): DebuggedAndChecked
}  # fmt: skip


@overload
def jit(
    function: Callable[P, R],
    *,
    static_argnames: str | Iterable[str] = (),
    device: str | None = None,
    check: bool = False,
    guards: bool | None = None,
    donate: Donate = (),
    debug: bool = False,
    dynamic: bool = False,
    tf32: bool = False,
    loops: Literal["roll", "unroll"] = "roll",
    effects: Literal["call", "trace"] = "call",
    verify: int = 0,
) -> Jitted[P, R]: ...
@overload
def jit(
    function: None = None,
    *,
    static_argnames: str | Iterable[str] = (),
    device: str | None = None,
    check: bool = False,
    guards: bool | None = None,
    donate: Donate = (),
    debug: bool = False,
    dynamic: bool = False,
    tf32: bool = False,
    loops: Literal["roll", "unroll"] = "roll",
    effects: Literal["call", "trace"] = "call",
    verify: int = 0,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
@with_users_frames
def jit(
    function: Any = None, *, static_argnames: str | Iterable[str] = (), device: str | None = None, check: bool = False,
    guards: bool | None = None, donate: Donate = (), debug: bool = False, dynamic: bool = False,
    tf32: bool = False,
    loops: Literal["roll", "unroll"] = "roll",
    effects: Literal["call", "trace"] = "call",
    verify: int = 0,
) -> Any:  # fmt: skip
    """Compile a NumPy function; also a decorator, with or without arguments.

    Arguments and results: NumPy arrays and scalars, Python numbers, and nested tuples, lists, dicts, namedtuples and
    dataclasses of them; any other argument is static. Results are NumPy objects of NumPy's dtypes. Arguments in
    ``static_argnames`` are static: each of their values is traced separately. ``device``: "cpu", "cuda" (the first GPU) or
    "cuda:N"; by default the device of the arguments: the GPU of a ``pb.DeviceArray`` or of another library's array on it,
    otherwise the CPU. See docs/cuda.md.

    ``check`` detects stale results: each call is traced again, and a TraceError names the first instruction, with its line,
    that differs from the program that would serve the call. Such a difference comes from outside state that no guard covers.

    ``guards``: how branches on traced values (``if x > 0``, ``while err > tol``, ``range(int(n))``) that cannot be compiled are
    treated. None: the trace so far runs on the arguments, the function continues with the resulting truth or whole number, and
    the program checks at each call that the outcome is the same. A call for which it is not runs another program, which is
    traced if there is none for its outcomes yet. A ``RetraceWarning`` says once why this was needed. True: all branches on
    values are treated so, also where a float decides (a format, ``sorted``), without that warning; a loop that ends by a value
    is traced once for each number of its iterations. False: they raise TraceError. Effects occur once, in the program that
    serves the call. A ``RetraceWarning`` names the line where a function was traced for more than 16 outcomes; ``f.explain``
    lists the guards.

    ``donate``: positions and names of arguments that the caller no longer needs, such as the state of a training step. A
    result with the shape and dtype of a donated array may be computed in its memory: then the result *is* that array, with new
    contents. Arrays that are read-only, not row-major or overlap another argument are left unchanged, and so is everything if
    a call raises. See docs/memory.md.

    ``dynamic``: extents of arguments are symbolic while the function is traced, and a call with other extents runs the program
    of that trace; the function does not run again. Where the function needs a number, as in ``if len(x) > 10`` or
    ``range(len(x))``, the answer becomes a guard: a call for which a guard does not hold is traced again, and both traces are
    kept. ``f.explain`` lists the guards with their lines. What cannot be symbolic (branches that ``guards=True`` follows,
    calls of Python functions) is traced for each shape.

    ``loops``: "roll" compiles Python's own ``if``, ``while``, ``for``, ``break``, ``continue``, early ``return``, ``and``,
    ``or``, ``not``, conditional expressions, chained comparisons, ``assert`` and ``raise`` where values decide them, and loops of
    known length that would unroll into many operations, in this function and in the functions that it calls. "unroll" runs
    Python's loops while the function is traced, iteration by iteration, and refuses branches on traced values. See
    docs/control-flow.md.

    ``effects``: "call" does what the function prints, logs, warns and writes into files at each call, in its branches and
    iterations, in the order of Python, and once under a gradient. "trace" does it while the function is traced, so it occurs
    once, and shows the types of traced values.

        f = pb.jit(bisect)                            # while high - low > tol: ...

    ``tf32``: matrix products of float32 may round elements to 11 bits before they are multiplied, where a device multiplies
    such numbers faster: on GPUs from sm_80 on, by tensor cores. Sums are in float32. The same holds for products in gradients.

    ``debug``: before a call runs compiled, it runs step by step on the interpreter, and a FloatingPointError names the first
    step that produces a NaN or an infinity from finite numbers, or a number out of the range of its integer dtype, forward or
    backward, also in loops and branches: the op, its line and its operands. Values read only by a ``where`` that takes another
    value, a minimum, a maximum or a comparison are ignored. Gradients and other transforms of such a function do the same.
    Calls are slow.

    ``verify``: the number of first calls of each program that are compared with plain Python on copies of the arguments:
    structure, dtypes, shapes and values of the results, writes into arguments and outside arrays, exceptions. A
    VerificationError names the first difference, with both values and the line; the arguments are then as before the call.
    Where no plain Python function exists, as for gradients, the interpreter is the reference, but the value of
    ``value_and_grad`` is compared with plain Python. Transforms of such a function do the same. Later calls cost nothing more.
    docs/debugging.md says what may differ, and how effects are treated.

        f = pb.jit(loss, verify=3)                    # f(w, x, y): float64, or VerificationError

    Raises TypeError and ValueError for bad options. Calls raise TraceError for what cannot be compiled.
    """
    if function is None:
        options = {"static_argnames": static_argnames, "device": device, "check": check, "guards": guards}
        more = {"donate": donate, "debug": debug, "dynamic": dynamic, "tf32": tf32, "loops": loops}
        more |= {"effects": effects, "verify": verify}
        return functools.partial(jit, **options, **more)
    if loops not in ("unroll", "roll"):
        raise ValueError(f'loops={loops!r}: "unroll" or "roll"')
    if effects not in ("call", "trace"):
        raise ValueError(f'effects={effects!r}: "call" or "trace"')
    device = None if device is None else checked(device)
    words = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    transform = (Guarded if guards else Transform)(
        name="jit", donate=donation(donate), dynamic=bool(dynamic), tf32=bool(tf32), rolls=loops == "roll" and not guards,
        follows_choices=guards is None and loops == "roll", has_effects_of_trace=effects == "trace",
        verify=_count(verify, debug or check),
    )
    kind = Verified if transform.verify else KINDS[bool(debug), bool(check)]
    kind = Plain if kind is Jitted and is_jit_disabled() else kind
    return transformed(function, transform, words, device, kind)


def _count(verify: Any, is_examined: bool) -> int:
    """Return the number of calls that are compared. Raises TypeError and ValueError."""
    if isinstance(verify, bool) or not isinstance(verify, int | np.integer):
        raise TypeError(f"verify is a number of calls, not {verify!r}")
    if verify < 0 or (verify and is_examined):
        reason = "less than none" if verify < 0 else "debug and check look at every call; leave one of them out"
        raise ValueError(f"verify={verify}: {reason}")
    return int(verify)


@overload
def grad(
    function: Callable[P, tuple[Any, Aux]], argnums: Argnums | None = None, *, argnames: Argnames | None = None,
    has_aux: Literal[True],
) -> Jitted[P, tuple[Any, Aux]]: ...  # fmt: skip
@overload
def grad(
    function: Callable[P, Any], argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Jitted[P, Any]: ...
@overload
def grad(
    function: None = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Callable[[Callable[P, Any]], Jitted[P, Any]]: ...
@with_users_frames
def grad(function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False) -> Any:
    """Return the gradient of a function that returns a float scalar; also a decorator, with or without arguments.

    The gradient is with respect to the arguments at the positions ``argnums`` and with the names ``argnames``; by default the
    first. One int or name: one gradient, with the containers, shapes and dtypes of that argument; otherwise a tuple. The
    positions of a method start after ``self``. With ``has_aux`` the function returns (value, aux), and the result is
    (gradient, aux). Reverse mode; higher orders by repetition.

    Calls raise TraceError, at the user's line, for a result that is not a float scalar, an argument that is not of floats, and
    an op that has no gradient.
    """
    return _differentiated("grad", function, argnums, argnames, has_aux)


@overload
def value_and_grad(
    function: Callable[P, R], argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Jitted[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    function: None = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Callable[[Callable[P, R]], Jitted[P, tuple[R, Any]]]: ...
@with_users_frames
def value_and_grad(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return a function's value and gradient, (value, gradient), computed together; options and errors as in ``grad``.

    With ``has_aux``: ((value, aux), gradient).
    """
    return _differentiated("value_and_grad", function, argnums, argnames, has_aux)


@with_users_frames
def _differentiated(name: str, function: Any, argnums: Any, argnames: Any, has_aux: bool) -> Any:
    if function is None:
        return functools.partial(_differentiated, name, argnums=argnums, argnames=argnames, has_aux=has_aux)
    transform = Gradient(name=name, argnums=checked_argnums(argnums), argnames=checked_argnames(argnames), has_aux=bool(has_aux))
    return transformed(function, transform)
