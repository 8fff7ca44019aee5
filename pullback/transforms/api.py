"""The face: ``jit``, ``grad`` and ``value_and_grad``.

A transformed function is traced at the first call of a signature and runs compiled from then on. Transforms compose in any
order. Every value a program depends on from outside is read or checked at each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from pullback.checking.check_mode import Checked
from pullback.checking.debug_mode import Debugged, DebuggedAndChecked
from pullback.checking.verify_mode import Verified
from pullback.compiled.function import Jitted, transformed
from pullback.compiled.transform import Argnames, Argnums, Gradient, Transform, checked_argnames, checked_argnums
from pullback.programs.donation import donation
from pullback.runtime.cuda.driver.driver import checked
from pullback.tracer.user_code.tracebacks import with_users_frames
from pullback.transforms.guards_mode import Guarded

P = ParamSpec("P")
R = TypeVar("R")
Aux = TypeVar("Aux")
Donate = int | str | Iterable[int | str]

# By ``debug`` and ``check``.
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
    guards: bool = False,
    donate: Donate = (),
    debug: bool = False,
    dynamic: bool = False,
    tf32: bool = False,
    verify: int = 0,
) -> Jitted[P, R]: ...
@overload
def jit(
    function: None = None,
    *,
    static_argnames: str | Iterable[str] = (),
    device: str | None = None,
    check: bool = False,
    guards: bool = False,
    donate: Donate = (),
    debug: bool = False,
    dynamic: bool = False,
    tf32: bool = False,
    verify: int = 0,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
@with_users_frames
def jit(
    function: Any = None, *, static_argnames: str | Iterable[str] = (), device: str | None = None, check: bool = False,
    guards: bool = False, donate: Donate = (), debug: bool = False, dynamic: bool = False,
    tf32: bool = False,
    verify: int = 0,
) -> Any:  # fmt: skip
    """Compile a NumPy function; also a decorator, with or without arguments.

    Arguments and results: NumPy arrays and scalars, Python numbers, and nested tuples, lists, dicts, namedtuples and
    dataclasses of them; any other argument is static. Results are NumPy's, of NumPy's dtypes. Arguments in
    ``static_argnames`` are static: each value of theirs is traced by itself. ``device``: "cpu", "cuda" (the
    first GPU) or "cuda:N"; by default where the arguments are: on the GPU of a ``pb.DeviceArray`` or of another library's array
    that lies there, else the CPU. See docs/cuda.md.

    ``check`` is for looking for stale results: each call is traced anew, and a TraceError names the first instruction, with its
    line, that differs from the program that would serve the call. That is state from outside that no guard sees.

    ``guards``: Python branches on traced values (``if x > 0``, ``while err > tol``, ``range(int(n))``, a format) are followed.
    The trace so far runs on the arguments, the function goes on with what was found, and the program checks that it is still so.
    A call for which it is not runs another program, which is traced if there is none for its outcomes yet: a loop that ends by a
    value is traced once for each number of its steps. Effects are had once, by the program that serves the call. A
    ``RetraceWarning`` names the line where a function was traced for more than 16 outcomes; ``f.explain`` names the guards.

    ``donate``: positions and names of arguments that the caller has no more use for, as the state of a training step. A result
    that is like a donated array, of its shape and dtype, may be computed in its memory: then the result *is* that array, with new
    contents. Arrays that are read-only, not row-major or overlap another argument are left as they are, and so is everything
    where a call raises. See docs/memory.md.

    ``dynamic``: extents of arguments are symbolic while the function is traced, and a call with other extents runs the program
    of that trace; the function does not run again. Where the function asks for a number, as in ``if len(x) > 10`` or
    ``range(len(x))``, what it was told is a guard: a call for which a guard does not hold is traced again, and both traces are
    kept. ``f.explain`` names the guards with their lines. What cannot be symbolic (branches that ``guards=True`` follows, calls
    of Python functions) is traced for each shape.

    ``tf32``: matrix products of float32 may round elements to 11 bits before they are multiplied, where a device multiplies
    such numbers faster: on GPUs from sm_80 on, by tensor cores. Sums are of float32. Those of gradients may, too.

    ``debug``: before a call runs compiled, it runs step by step on the interpreter, and a FloatingPointError names the first step
    that makes a NaN or an infinity of numbers, or a number out of the range of its integer dtype, forward or backward, in loops
    and branches too: the op, its line and its operands. What only a ``where`` that takes another value, a minimum, a maximum or
    a comparison reads is passed over. Gradients and other transforms of such a function do the same. Calls take long.

    ``verify``: the first so many calls of each program are compared with plain Python on copies of the arguments: structure,
    dtypes, shapes and values of the results, what was written into arguments and arrays from outside, exceptions. A
    VerificationError says what differs first, with both values and the line; then the arguments are as they were. Where there is
    no plain Python, as for gradients, the interpreter stands in its place, but the value of ``value_and_grad`` is compared with
    plain Python. Transforms of such a function do the same. Later calls cost nothing more. docs/debugging.md says what may
    differ, and what becomes of effects.

        f = pb.jit(loss, verify=3)                    # f(w, x, y): float64, or VerificationError

    Raises TypeError and ValueError for bad options. Calls raise TraceError for what cannot be compiled.
    """
    if function is None:
        options = {"static_argnames": static_argnames, "device": device, "check": check, "guards": guards}
        return functools.partial(jit, **options, donate=donate, debug=debug, dynamic=dynamic, tf32=tf32, verify=verify)
    device = None if device is None else checked(device)
    words = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    transform = (Guarded if guards else Transform)(
        name="jit", donate=donation(donate), dynamic=bool(dynamic), tf32=bool(tf32), verify=_count(verify, debug or check)
    )
    kind = Verified if transform.verify else KINDS[bool(debug), bool(check)]
    return transformed(function, transform, words, device, kind)


def _count(verify: Any, is_examined: bool) -> int:
    """How many calls are compared. Raises TypeError and ValueError."""
    if isinstance(verify, bool) or not isinstance(verify, int | np.integer):
        raise TypeError(f"verify is a number of calls, not {verify!r}")
    if verify < 0 or (verify and is_examined):
        what = "less than none" if verify < 0 else "debug and check look at every call; leave one of them out"
        raise ValueError(f"verify={verify}: {what}")
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
    """The gradient of a function that returns a float scalar; also a decorator, with or without arguments.

    With respect to the arguments at the positions ``argnums`` and of the names ``argnames``; to the first if neither is
    given. One int or name: one gradient, with the containers, shapes and dtypes of that argument; otherwise a tuple. The
    positions of a method start after ``self``. With ``has_aux`` the function returns (value, aux), and the result is
    (gradient, aux). Reverse mode; any order by repetition.

    Calls raise TraceError, at the user's line, for a result that is not a float scalar, an argument that is not of floats,
    and an op that has no gradient.
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
    """A function's value and gradient, (value, gradient), computed together; options and errors as in ``grad``.

    With ``has_aux``: ((value, aux), gradient).
    """
    return _differentiated("value_and_grad", function, argnums, argnames, has_aux)


@with_users_frames
def _differentiated(name: str, function: Any, argnums: Any, argnames: Any, has_aux: bool) -> Any:
    if function is None:
        return functools.partial(_differentiated, name, argnums=argnums, argnames=argnames, has_aux=has_aux)
    transform = Gradient(name=name, argnums=checked_argnums(argnums), argnames=checked_argnames(argnames), has_aux=bool(has_aux))
    return transformed(function, transform)
