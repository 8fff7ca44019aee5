"""Solvers with implicit derivatives: ``fixed_point`` and ``odeint``.

Fixed points are iterated natively; differential equations are integrated by SciPy on a compiled right-hand side, in a
transformed function by a callback. The derivatives are those of the equation that the solution satisfies, not of the
iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pullback import tree
from pullback.tracer import current, follow, twin
from pullback.tracer.arrays.make import as_traced
from pullback.transforms.api import jit
from pullback.transforms.callback import ShapeDtypeStruct, callback
from pullback.transforms.control_flow import while_loop
from pullback.transforms.custom import custom_vjp
from pullback.transforms.derivatives import jvp, vjp

T = TypeVar("T")
Function = Callable[..., Any]
Array = Any


# fixed points


def _solve(f: Function, a: Any, x0: Any, distance: Function, tol: Any) -> Any:
    step = follow(f)(a)
    x = step(x0)
    before = tree.map(lambda start, image: as_traced(start).astype(image.dtype), x0, x)
    return while_loop(lambda s: follow(distance)(*s) > tol, lambda s: (step(s[0]), s[0]), (x, before))[0]


_solved = jit(_solve)
_solution = custom_vjp(_solve, nondiff_argnums=(0, 3, 4))


def _back_step(f: Function, parameters: Any) -> Function:
    """Return the iteration whose fixed point is ``u = g + (df/dx)^T u``."""
    a, x, g = parameters
    _, pull = vjp(follow(f)(a), x)
    return lambda u: tree.map(lambda part, seed: part + seed, pull(u)[0], g)


def _solution_back(f: Function, distance: Function, tol: Any, residuals: Any, g: Any) -> Any:
    a, x = residuals
    u = _solution(partial(_back_step, f), (a, x, g), tree.map(np.zeros_like, x), distance, tol)
    _, pull = vjp(lambda a: follow(f)(a)(x), a)
    return pull(u)[0], None


def _solution_with_residuals(f: Function, a: Any, x0: Any, distance: Function, tol: Any) -> Any:
    x = _solution(f, a, x0, distance, tol)
    return x, (a, x)


def _along_step(f: Function, parameters: Any) -> Function:
    """Return the iteration whose fixed point is ``u = moved + (df/dx) u``."""
    a, x, moved = parameters
    return lambda u: tree.map(lambda part, by_a: part + by_a, jvp(follow(f)(a), (x,), (u,))[1], moved)


def _solution_along(f: Function, distance: Function, tol: Any, primals: Any, tangents: Any) -> Any:
    a, x0 = primals
    x = _solution(f, a, x0, distance, tol)
    _, moved = jvp(lambda a: follow(f)(a)(x), (a,), (tangents[0],))
    return x, _solution(partial(_along_step, f), (a, x, moved), tree.map(np.zeros_like, x), distance, tol)


_solution.defvjp(_solution_with_residuals, _solution_back)
_solution.defjvp(_solution_along)


def fixed_point(f: Callable[[Any], Callable[[T], T]], a: Any, x0: T, distance: Callable[[T, T], Any], tol: float) -> T:
    """Return the ``x`` with ``f(a)(x) == x``, by iteration; differentiable by ``a``, of any order and in both modes.

    The derivative is that of the equation, by the same iteration on its adjoint (Christianson, 1994) or, in forward mode, on its
    tangent; the derivative by ``x0`` is zero. The iteration is one native loop. If it does not converge, it runs until Ctrl-C.

    Parameters
    ----------
    f : callable
        ``f(a)`` is a plain NumPy function from ``x`` to the next ``x``.
    a : array, number or container of them
        The parameters. Pass traced values in it: any other value that ``f`` reads is a constant to derivatives.
    x0 : array, number or container of them
        The start.
    distance : callable
        Function of ``(x, previous)`` that returns a number.
    tol : float
        The iteration ends when the distance is at most this.

    Returns
    -------
    array, number or container of them
        The fixed point, like ``x0``.

    Raises
    ------
    TraceError
        For an ``f`` that changes the types of ``x``.

    See Also
    --------
    while_loop : A loop whose iterations are differentiated.
    odeint : A differential equation.

    Examples
    --------
    >>> def root(a):
    ...     return pb.fixed_point(lambda a: lambda x: (x + a / x) / 2, a, 1.0, lambda x, y: np.abs(x - y), 1e-12)
    >>> round(root(2.0), 6), round(pb.grad(root)(2.0), 6)
    (1.414214, np.float64(0.353553))
    """
    solution: T = (_solved if current() is None else _solution)(f, a, x0, distance, tol)
    return solution


# ordinary differential equations

_OPTIONS = ("rtol", "atol", "h0", "hmax", "hmin", "ixpr", "mxstep", "mxhnil", "mxordn", "mxords", "tcrit")
Options = dict[str, Any]


def odeint(func: Function, y0: Any, t: Any, args: tuple[Any, ...] = (), **options: Any) -> Array:
    """Return ``scipy.integrate.odeint(func, y0, t, args)``, differentiable by ``y0``, ``t`` and the floats in ``args``.

    SciPy's LSODA runs on the compiled ``func``. Transformed functions may also call it as ``scipy.integrate.odeint``. The
    gradient is the gradient of the continuous solution: the adjoint equation, integrated backwards from one time to the previous
    one (Chen et al., 2018), with the same options; forward mode integrates the sensitivities. Both are as accurate as ``rtol``
    and ``atol`` make the solver.

    Parameters
    ----------
    func : callable
        ``func(y, t, *args)`` returns ``dy/dt``. It is plain NumPy and runs after the trace: pass traced values in ``args``.
    y0 : array of float64, shape (n,) or ()
        The state at time ``t[0]``.
    t : array of float64, shape (m,)
        The times, in order.
    args : tuple, optional
        Further arguments of ``func``.
    **options : object
        SciPy's options, except those of a Jacobian and ``full_output``.

    Returns
    -------
    array of float64, shape (m, n)
        The states at the times.

    Raises
    ------
    TypeError
        For the options that are excepted.

    See Also
    --------
    scipy.integrate.odeint : The solver.
    fixed_point : An equation without time.

    Examples
    --------
    >>> decay = lambda y, t, rate: -rate * y
    >>> final = lambda rate: pb.odeint(decay, np.array([1.0]), np.array([0.0, 1.0]), args=(rate,))[-1, 0]
    >>> round(pb.grad(final)(0.5), 4)
    np.float64(-0.6065)
    """
    if current() is None and not set(options) <= {*_OPTIONS, "tfirst"}:
        return _scipy_odeint()(jit(func), y0, t, args, **options)
    if options.pop("tfirst", False):
        func = partial(_time_first, func)
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise TypeError(f"odeint in a transformed function does not take {', '.join(unknown)}; it takes {', '.join(_OPTIONS)}")
    start, times = (np.asarray(x) if current() is None else as_traced(x) for x in (y0, t))
    arguments = tuple(args) if isinstance(args, tuple | list) else (args,)
    states: Array = _states(func, options, np.ravel(start) * 1.0, times * 1.0, arguments)
    return states


def _scipy_odeint() -> Function:
    import scipy.integrate

    function: Function = scipy.integrate.odeint
    return function


def _time_first(func: Function, y: Array, t: Array, *args: Any) -> Any:
    return func(t, y, *args)


@jit
def _rate(func: Function, y: Array, t: Array, args: tuple[Any, ...]) -> Array:
    return _slope(func, y, t, args)


def _slope(func: Function, y: Array, t: Array, args: tuple[Any, ...]) -> Array:
    rates = follow(func)(y, t, *args)
    return np.ravel(np.stack(rates) if isinstance(rates, tuple | list) else rates)


def _integrate(func: Function, options: Options, y0: Array, t: Array, args: tuple[Any, ...]) -> Array:
    return _scipy_odeint()(lambda y, t: _rate(func, y, t, args), y0, t, **options)


def _integrated(func: Function, options: Options, y0: Array, t: Array, args: tuple[Any, ...]) -> Array:
    if current() is None:
        return _integrate(func, options, y0, t, args)
    types = ShapeDtypeStruct((len(t), len(y0)), float)
    return callback(partial(_integrate, func), types, options, y0, t, args)


_states = custom_vjp(_integrated, nondiff_argnums=(0, 1))


def _states_with_residuals(func: Function, options: Options, y0: Array, t: Array, args: tuple[Any, ...]) -> Any:
    states = _states(func, options, y0, t, args)
    return states, (states, t, args)


def _states_back(func: Function, options: Options, residuals: Any, g: Array) -> Any:
    return _adjoint(func, options, *residuals, g)


def _states_along(func: Function, options: Options, primals: Any, tangents: Any) -> Any:
    """Return the states and their tangents: sensitivities integrated with the states, and the rates times the tangents of the
    times."""
    (y0, t, args), (dy0, dt, dargs) = primals, tangents
    start = np.concatenate([y0, dy0 - _slope(func, y0, t[0], args) * dt[0]])
    combined = _states(partial(_sensitive, func), options, start, t, (args, dargs))
    size = len(y0)
    states = combined[:, :size]
    moves = [_slope(func, states[k], t[k], args) * dt[k] for k in range(len(t))]
    return states, combined[:, size:] + np.stack(moves)


def _sensitive(func: Function, state: Array, t: Array, args: tuple[Any, ...], dargs: tuple[Any, ...]) -> Array:
    size = len(state) // 2
    y, dy = state[:size], state[size:]
    return np.concatenate(jvp(lambda y, args: _slope(func, y, t, args), (y, args), (dy, dargs)))


_states.defvjp(_states_with_residuals, _states_back)
_states.defjvp(_states_along)


def _adjoint_rate(func: Function, size: int, state: Array, t: Array, args: tuple[Any, ...]) -> Array:
    """Return the time derivatives of the states, and of the cotangents of states, time and arguments."""
    y, ct = state[:size], state[size : 2 * size]
    rate, pull = vjp(lambda y, t, args: _slope(func, y, t, args), y, t, args)
    return np.concatenate([rate, *(_vector(part) for part in pull(-ct))])


def _vector(values: Any) -> Array:
    """Return the floats of a tree of cotangents in one vector."""
    parts = [np.ravel(x) for x in tree.leaves(values)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _swept(
    rate: Function,
    integrate: Function,
    func: Function,
    options: Options,
    states: Array,
    t: Array,
    args: tuple[Any, ...],
    g: Array,
) -> Any:
    """Return the cotangents of the first state, the times and the arguments, for cotangents ``g`` of the states."""
    count, size = states.shape
    ct, at_first = g[-1], 0.0
    by_args: Any = np.zeros(sum(np.size(x) for x in tree.leaves(args) if _is_float(x)))
    times = []
    for k in range(count - 1, 0, -1):
        moved = np.sum(rate(func, states[k], t[k], args) * g[k])
        times.append(moved)
        at_first = at_first - moved
        start = np.concatenate([states[k], ct, np.reshape(at_first, (1,)), by_args])
        span = np.stack([t[k], t[k - 1]])
        end = integrate(partial(_adjoint_rate, func, size), options, start, span, (args,))[1]
        ct = end[size : 2 * size] + g[k - 1]
        at_first, by_args = end[2 * size], end[2 * size + 1 :]
    by_t = np.stack([at_first, *times[::-1]])
    return ct, by_t, _like_floats(args, by_args)


def _is_float(leaf: Any) -> bool:
    return np.asarray(leaf).dtype.kind == "f" if not hasattr(leaf, "dtype") else leaf.dtype.kind == "f"


def _like_floats(values: Any, vector: Array) -> Any:
    """Return the elements of a vector in place of the floats of a tree, None in place of other leaves."""
    leaves, structure = tree.flatten(values)
    values_like, start = [], 0
    for leaf in leaves:
        size = int(np.size(leaf)) if _is_float(leaf) else 0
        values_like.append(np.reshape(vector[start : start + size], np.shape(leaf)) if _is_float(leaf) else None)
        start += size
    return tree.unflatten(structure, values_like)


def _swept_once(func: Function, options: Options, states: Array, t: Array, args: tuple[Any, ...], g: Array) -> Any:
    if current() is None:
        return _swept(_rate, _integrate, func, options, states, t, args, g)
    floats = tree.map(lambda x: x if _is_float(x) else None, args)
    types = (ShapeDtypeStruct((states.shape[1],), float), ShapeDtypeStruct((len(t),), float), floats)
    return callback(partial(_swept, _rate, _integrate, func), types, options, states, t, args, g)


_adjoint: Any = custom_vjp(_swept_once, nondiff_argnums=(0, 1))


def _adjoint_with_residuals(func: Function, options: Options, *inputs: Any) -> Any:
    return _adjoint(func, options, *inputs), inputs


def _adjoint_back(func: Function, options: Options, inputs: Any, ct: Any) -> Any:
    _, pull = vjp(lambda *values: _swept(_slope, _states, func, options, *values), *inputs)
    return pull(ct)


def _adjoint_along(func: Function, options: Options, primals: Any, tangents: Any) -> Any:
    return jvp(lambda *values: _swept(_slope, _states, func, options, *values), primals, tangents)


_adjoint.defvjp(_adjoint_with_residuals, _adjoint_back)
_adjoint.defjvp(_adjoint_along)
twin("scipy.integrate.odeint")(odeint)
