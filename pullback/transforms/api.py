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

    The function is traced at the first call of a signature: the dtypes and ranks of its arrays, and the values of its static
    arguments. Later calls run compiled. Other lengths of arrays run the same kernels.

    Parameters
    ----------
    function : callable
        A function of NumPy arrays and scalars, Python numbers, and nested tuples, lists, dicts, namedtuples and dataclasses of
        them. Any other argument is static: each of its values is traced separately.
    static_argnames : str or iterable of str, optional
        Names of arguments that are static whatever they are.
    device : str, optional
        "cpu", "cuda" (the first GPU) or "cuda:N". By default the device of the arguments: the GPU of a `pullback.DeviceArray` or
        of another library's array on it, otherwise the CPU.
    check : bool, optional
        Detect stale results: each call is traced again, and a TraceError names the first instruction, with its line, that differs
        from the program that would serve the call. Such a difference comes from outside state that no guard covers.
    guards : bool or None, optional
        How branches on traced values (``if x > 0``, ``while err > tol``, ``range(int(n))``) that cannot be compiled are treated.
        None: the trace so far runs on the arguments, the function continues with the resulting truth or whole number, and the
        program checks at each call that the outcome is the same. A call for which it is not runs another program, which is traced
        if there is none for its outcomes yet. A `pullback.RetraceWarning` says once why this was needed. True: all branches on
        values are treated so, also where a float decides (a format, ``sorted``), without that warning; a loop that ends by a
        value is traced once for each count of its iterations. False: they raise TraceError. Effects occur once, in the program
        that serves the call. A RetraceWarning names the line where a function was traced for more than 16 outcomes.
    donate : int, str or iterable of them, optional
        Positions and names of arguments that the caller no longer needs, such as the state of a training step. A result with the
        shape and dtype of a donated array may be computed in its memory: then the result *is* that array, with new contents.
        Arrays that are read-only, not row-major or overlap another argument are left unchanged, and so is everything if a call
        raises.
    debug : bool, optional
        Before a call runs compiled, run it step by step on the interpreter. A FloatingPointError names the first step that
        produces a NaN or an infinity from finite numbers, or an integer out of the range of its dtype, forward or backward, also
        in loops and branches: the op, its line and its operands. Values read only by a ``where`` that takes another value, a
        minimum, a maximum or a comparison are ignored. Transforms of such a function do the same. Calls are slow.
    dynamic : bool, optional
        Make extents of arguments symbolic while the function is traced: a call with other extents runs the program of that trace.
        Where the function needs a length as a number, as in ``if len(x) > 10``, the answer becomes a guard: a call for which a
        guard does not hold is traced again, and both traces are kept. What cannot be symbolic (branches that ``guards=True``
        follows, calls of Python functions) is traced for each shape.
    tf32 : bool, optional
        Let matrix products of float32 round elements to 11 bits before they are multiplied, where a device multiplies such
        numbers faster: on GPUs from sm_80 on, by tensor cores. Sums are in float32. The same holds for products in gradients.
    loops : {"roll", "unroll"}, optional
        "roll" compiles Python's own ``if``, ``while``, ``for``, ``break``, ``continue``, early ``return``, ``and``, ``or``,
        ``not``, conditional expressions, chained comparisons, ``assert`` and ``raise`` where values decide them, and loops of
        known length that would unroll into many operations, in this function and in the functions that it calls. "unroll" runs
        Python's loops while the function is traced, iteration by iteration, and refuses branches on traced values.
    effects : {"call", "trace"}, optional
        "call" does what the function prints, logs, warns and writes into files at each call, in its branches and iterations, in
        the order of Python, and once under a gradient. "trace" does it while the function is traced, so it occurs once, and shows
        the types of traced values.
    verify : int, optional
        The number of first calls of each program that are compared with plain Python on copies of the arguments: structure,
        dtypes, shapes and values of the results, writes into arguments and outside arrays, exceptions. A
        `pullback.VerificationError` names the first difference, with both values and the line; the arguments are then as before
        the call. Where no plain Python function exists, as for gradients, the interpreter is the reference, but the value of
        ``value_and_grad`` is compared with plain Python. Transforms of such a function do the same.

    Returns
    -------
    callable
        The compiled function. It takes the same arguments; its results are NumPy objects of NumPy's dtypes. Its methods ``into``,
        ``stages``, ``explain``, ``residuals``, ``memory``, ``cost``, ``profile`` and ``cache_info`` report on it.

    Raises
    ------
    TypeError
        For an option of the wrong type, and for names that are no arguments.
    ValueError
        For an option of an unknown value.
    TraceError
        From a call, for what cannot be compiled, at the user's line.

    See Also
    --------
    grad : The gradient, compiled.
    value_and_grad : Value and gradient, compiled together.
    vmap : All rows at once.

    Examples
    --------
    >>> @pb.jit
    ... def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> norm(np.array([3.0, 4.0]))
    np.float64(5.0)

    Python's own loops and branches on values are compiled:

    >>> @pb.jit
    ... def root(a):
    ...     x = a
    ...     while abs(x * x - a) > 1e-12:
    ...         x = (x + a / x) / 2
    ...     return x
    >>> round(root(2.0), 6)
    1.414214
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

    Reverse mode. Higher orders are gradients of gradients.

    Parameters
    ----------
    function : callable
        A NumPy function whose result is a float scalar: a Python float, a NumPy scalar or an array of shape ().
    argnums : int or tuple of int, optional
        Positions of the arguments to differentiate by; by default the first. The positions of a method start after ``self``.
    argnames : str or tuple of str, optional
        Names of arguments to differentiate by, in addition to those at ``argnums``.
    has_aux : bool, optional
        The function returns ``(value, aux)``; ``aux`` is not differentiated.

    Returns
    -------
    callable
        A compiled function of the same arguments. For one position or name it returns one gradient, with the containers, shapes
        and dtypes of that argument; otherwise a tuple of gradients. With ``has_aux`` it returns ``(gradient, aux)``.

    Raises
    ------
    TypeError
        For positions and names that are no arguments.
    TraceError
        From a call, at the user's line, for a result that is not a float scalar, an argument that is not of floats, and an op
        that has no gradient.

    See Also
    --------
    value_and_grad : Value and gradient together.
    jacrev : For functions of several results.
    hessian : Second derivatives.
    check_grad : Compare a gradient with difference quotients.

    Examples
    --------
    >>> def loss(w, x):
    ...     return np.sum((x @ w) ** 2)
    >>> pb.grad(loss)(np.array([1.0, 2.0]), np.eye(2))
    array([2., 4.])

    By several arguments, and of second order:

    >>> pb.grad(lambda x, y: x**2 * y, argnums=(0, 1))(3.0, 2.0)
    (np.float64(12.0), np.float64(9.0))
    >>> pb.grad(pb.grad(np.sin))(0.5) == -np.sin(0.5)
    np.True_
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
    """Return a function's value and gradient, computed together; also a decorator, with or without arguments.

    Parameters
    ----------
    function : callable
        A NumPy function whose result is a float scalar.
    argnums : int or tuple of int, optional
        Positions of the arguments to differentiate by; by default the first.
    argnames : str or tuple of str, optional
        Names of arguments to differentiate by.
    has_aux : bool, optional
        The function returns ``(value, aux)``; ``aux`` is not differentiated.

    Returns
    -------
    callable
        A compiled function of the same arguments that returns ``(value, gradient)``; with ``has_aux``
        ``((value, aux), gradient)``. The gradient is as in `grad`.

    Raises
    ------
    TypeError
        For positions and names that are no arguments.
    TraceError
        From a call, as for `grad`.

    See Also
    --------
    grad : The gradient alone.
    vjp : For functions of several results.

    Examples
    --------
    The pair is what ``scipy.optimize.minimize`` takes with ``jac=True``:

    >>> from scipy.optimize import minimize
    >>> @pb.value_and_grad
    ... def rosenbrock(x):
    ...     return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    >>> minimize(rosenbrock, np.zeros(5), jac=True, tol=1e-10).x.round(4)
    array([1., 1., 1., 1., 1.])
    """
    return _differentiated("value_and_grad", function, argnums, argnames, has_aux)


@with_users_frames
def _differentiated(name: str, function: Any, argnums: Any, argnames: Any, has_aux: bool) -> Any:
    if function is None:
        return functools.partial(_differentiated, name, argnums=argnums, argnames=argnames, has_aux=has_aux)
    transform = Gradient(name=name, argnums=checked_argnums(argnums), argnames=checked_argnames(argnames), has_aux=bool(has_aux))
    return transformed(function, transform)
