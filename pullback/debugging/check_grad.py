"""Implement ``pb.check_grad``: compare gradients with central differences, and the function with its plain NumPy run.

The differences are taken of the plain function, independently of this package.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec

import numpy as np

from pullback.checking.control_flow_reference import in_python
from pullback.checking.divergence import Difference, difference_texts, diverging_line
from pullback.compiled.bound_method import Method
from pullback.compiled.function import Jitted
from pullback.debugging.check_jacobian import MOST_ENTRIES, Entries, in_float32
from pullback.debugging.finite_differences import Differences, Options, Slope
from pullback.ir.core.records import dataclass
from pullback.programs.call import Call
from pullback.programs.report import Report, counted
from pullback.tracer import TracedArray, TraceError, TreeDef, current, flatten, rebuild
from pullback.tracer.arrays.make import as_traced, created
from pullback.transforms.api import grad, jit
from pullback.transforms.derivatives import jvp
from pullback.tree import leaf_paths

P = ParamSpec("P")
Argnums = int | tuple[int, ...] | None
Scalar = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientReport(Report):
    """The result of ``check_grad``.

    ``value``: where the function differs from its plain run, or None; ``slopes``: every derivative that was compared;
    ``wrong``: the wrong ones, the worst first.
    """

    function: str
    value: Difference | None
    slopes: tuple[Slope, ...]

    @property
    def wrong(self) -> tuple[Slope, ...]:
        return tuple(sorted((s for s in self.slopes if not s.is_right), key=lambda s: -s.excess))

    @property
    def worst(self) -> Slope | None:
        """The derivative with the largest error relative to its tolerance; None if there are no derivatives."""
        return max(self.slopes, key=lambda s: s.excess, default=None)

    @property
    def is_right(self) -> bool:
        return self.value is None and not self.wrong

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.function}: differs from its plain NumPy run\n{self.value}"
        wrong = self.wrong
        compared = counted(len(self.slopes), "derivative")
        if wrong:
            return "\n".join([f"{self.function}: {len(wrong)} of {compared} wrong", *(f"  {s}" for s in wrong[:8])])
        lines = [f"{self.function}: {compared} right"]
        return "\n".join([*lines, f"  {self.worst}"] if self.worst else lines)


class WrongGradient(AssertionError):
    """Raised when a check finds a difference; ``report`` is the ``GradientReport``."""

    def __init__(self, report: GradientReport) -> None:
        super().__init__(str(report))
        self.report = report


def check_grad(
    f: Callable[P, Any], *, order: int = 1, argnums: Argnums = None, rtol: float | None = None,
    atol: float = 0.0, seed: int = 0, modes: Sequence[str] = ("rev", "jac"), f32: bool = False,
) -> Callable[P, GradientReport]:  # fmt: skip
    """Return a function that checks the gradient of ``f`` at the arguments of a call, for tests.

    First the compiled function is compared with its plain NumPy run, in which `cond`, `scan` and the like are Python's branches
    and loops; if they differ, the first line after which a variable differs is named. Then its derivatives are compared with
    central differences of the plain function: one by one if there are few, otherwise along random directions, and one by one if a
    direction is wrong. A function with several results, or with arrays, is checked through a random combination of them. Complex
    numbers are checked as their real and imaginary parts, along a last axis of size two. At a corner of the function any slope
    between the slopes of its two sides is right.

    Parameters
    ----------
    f : callable
        A NumPy function.
    order : int, optional
        Above 1, the derivatives of each gradient are compared with differences of that gradient.
    argnums : int or tuple of int, optional
        Positions of the arguments to differentiate by; by default all floats of the arguments.
    rtol : float, optional
        The relative tolerance: 1e-6 for float64, 1e-2 for float32 and 0.2 below by default.
    atol : float, optional
        The absolute tolerance.
    seed : int, optional
        The seed of the points and directions, which depend on nothing else.
    modes : sequence of str, optional
        "rev", the gradient of each order; "jac", for the first order, the full Jacobian, entry by entry, if it has at most 2048
        entries, and the dot-product test, if a forward mode exists: forward mode along random directions against reverse mode;
        "fwd", forward mode of each order along random directions against differences.
    f32 : bool, optional
        Compute the gradient also in float32, and compare it with the one in float64.

    Returns
    -------
    callable
        A function of the arguments of ``f`` that returns a report.

    Raises
    ------
    AssertionError
        From the check, if anything is wrong; its ``report`` has the same content as fields.
    TraceError
        From the check, if the gradient cannot be computed.
    ValueError
        If there is no float to differentiate by, or none in the result.

    See Also
    --------
    find_nan : The origin of a value that is not finite.

    Examples
    --------
    >>> report = pb.check_grad(lambda x: np.sum(np.tanh(x)))(np.array([0.1, 0.7]))
    >>> bool(report)
    True
    """

    def check(*args: P.args, **kwargs: P.kwargs) -> GradientReport:
        if not set(modes) <= {"rev", "fwd", "jac"} or not modes:
            raise ValueError(f'modes {modes!r}: some of "rev", "fwd" and "jac"')
        subject = _Subject.of(f, args, kwargs)
        options = Options(rtol=rtol, atol=atol, rng=np.random.default_rng(seed))
        with np.errstate(all="ignore"):
            value = subject.difference()
            slopes = subject.slopes(order, argnums, options, modes, f32) if value is None else []
        report = GradientReport(function=subject.call.title, value=value, slopes=tuple(slopes))
        if not report.is_right:
            raise WrongGradient(report)
        return report

    return check


def check_grads(
    f: Callable[P, Any], argnum: int | tuple[int, ...] = 0, *, modes: Sequence[str] = ("fwd", "rev"), order: int = 2
) -> Callable[P, GradientReport]:
    """Call `check_grad` with the name, the arguments and the defaults of ``autograd.test_util.check_grads``.

    Parameters
    ----------
    f : callable
        A NumPy function.
    argnum : int or tuple of int, optional
        Positions of the arguments to differentiate by.
    modes : sequence of str, optional
        As in `check_grad`.
    order : int, optional
        The highest order of derivatives that is checked.

    Returns
    -------
    callable
        A function of the arguments of ``f`` that returns a report.

    Raises
    ------
    AssertionError
        From the check, if anything is wrong.

    See Also
    --------
    check_grad : The same with other defaults, and more of them.

    Examples
    --------
    >>> bool(pb.check_grads(np.sin)(0.3))
    True
    """
    return check_grad(f, order=order, argnums=argnum, modes=modes)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Subject:
    """The call of a function under test. ``plain``: its NumPy function, None behind a gradient; ``first``: the position that
    ``argnums`` counts as 0."""

    call: Call
    function: Jitted[..., Any]
    plain: Any
    first: int

    @staticmethod
    def of(f: Any, args: Any, kwargs: Any) -> _Subject:
        compiled = f if isinstance(f, Jitted | Method) else jit(f)
        call = compiled.examine(args, kwargs)
        function: Any = compiled.__func__ if isinstance(compiled, Method) else compiled
        return _Subject(call=call, function=function, plain=_plain(function), first=int(isinstance(compiled, Method)))

    def run(self, function: Any, leaves: Sequence[Any]) -> tuple[list[Any], TreeDef]:
        """Return what a function returns for these leaves; arrays are copied first, since the function may write into them."""
        copied = [_copied(x) if isinstance(x, np.ndarray | TracedArray) and x.ndim else x for x in leaves]
        args, kwargs = rebuild(self.call.signature.tree, copied)
        if function is not self.plain:
            return flatten(function(*args, **kwargs))
        with in_python():
            return flatten(function(*args, **kwargs))

    def difference(self) -> Difference | None:
        """Return the first difference between the compiled call and the plain one; None if they agree."""
        if self.plain is None:
            return None
        call = self.call
        expected, expected_tree = self.run(self.plain, call.leaves)
        actual, actual_tree = self.run(self.function, call.leaves)
        names = [f"result{at}" for at in leaf_paths(expected_tree, "")]
        pairs = zip(names, actual, expected, strict=False)
        wrong = next(((name, differ) for name, a, b in pairs if (differ := difference_texts(a, b)) is not None), None)
        if wrong is None and actual_tree != expected_tree:
            wrong = "result", (str(actual_tree), str(expected_tree))
        if wrong is None:
            return None
        name, (was, should) = wrong
        line = diverging_line(call, lambda: self.run(self.plain, call.leaves))
        return line or Difference(what=name, file="", line=0, source="", found=was, expected=should)

    def slopes(self, order: int, argnums: Argnums, options: Options, modes: Sequence[str], f32: bool) -> list[Slope]:
        """Return the derivatives up to an order, each with its difference quotient."""
        title, leaves = self.call.title, self.call.leaves
        names = [a.name for a in self.call.arguments if not a.is_static]
        chosen = [k for k in self.positions(argnums) if _is_float(leaves[k])]
        if not chosen:
            raise ValueError(f"{title} has no float argument to differentiate by")
        got, tree = self.run(self.function, leaves)
        sized = [(n, _shape(x)) for n, x in zip((f"result{at}" for at in leaf_paths(tree, "")), got, strict=True) if _is_float(x)]
        results = [x for x in got if _is_float(x)]
        if not results:
            raise ValueError(f"{title} has no float result to differentiate")
        weights = _weights(results, options.rng)

        def with_values(function: Any, reduce: Callable[[Sequence[Any]], Any]) -> Scalar:
            def call(*values: Any) -> Any:
                all_leaves = list(leaves)
                for k, value in zip(chosen, values, strict=True):
                    all_leaves[k] = value[..., 0] + 1j * value[..., 1] if _is_complex(leaves[k]) else value
                return reduce(self.run(function, all_leaves)[0])

            return _titled(call, title)

        def scalar(function: Any) -> Scalar:
            return with_values(function, lambda got: _combined(got, weights))

        values = [_parts(leaves[k]) if _is_complex(leaves[k]) else leaves[k] for k in chosen]
        coarsest = min((np.asarray(np.real(x)).dtype for x in (*values, *results)), key=lambda dtype: dtype.itemsize)
        inner = scalar(self.function)
        outer = jit(inner) if self.plain is None else scalar(self.plain)
        check = _Check(title=title, names=[names[k] for k in chosen], values=values, dtype=coarsest, options=options)
        slopes: list[Slope] = []
        if "rev" in modes:
            slopes += check.reverse(inner, outer, order)
        if "fwd" in modes:
            slopes += check.forward(inner, outer, order)
        if "jac" in modes:
            with contextlib.suppress(TraceError):
                slopes += check.dot_products(inner, outer)
        vector = with_values(self.function, _flat_floats)
        plain = jit(vector) if self.plain is None else with_values(self.plain, _flat_floats)
        entries = Entries(
            vector=vector, plain=plain, names=check.names, values=values, results=sized, dtype=coarsest, options=options
        )
        if "jac" in modes and entries.count <= MOST_ENTRIES and not ("rev" in modes and entries.is_gradient):
            slopes += entries.slopes()
        if f32:
            slopes += in_float32(inner, values, check.names, grad(inner, argnums=tuple(range(len(values))))(*values), options)
        return slopes

    def positions(self, argnums: Argnums) -> list[int]:
        """Return the indices of the leaves of the arguments at these positions; of all arguments if None. Raises ValueError."""
        tree = self.call.signature.tree
        if argnums is None:
            return list(range(tree.count))
        counts = [child.count for child in tree.children[0].children]
        starts = np.cumsum([0, *counts])
        many = len(counts) - self.first
        wanted = [argnums] if isinstance(argnums, int) else list(argnums)
        if any(not -many <= k < many for k in wanted):
            raise ValueError(f"argnums {argnums}, but the call has {counted(many, 'positional argument')}")
        chosen = [self.first + k % many for k in wanted]
        return [i for k in chosen for i in range(starts[k], starts[k + 1])]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Check:
    """The derivatives of a scalar function of ``values``, which have the ``names``.

    Its methods differentiate ``inner`` and take difference quotients of ``outer``, which computes the same.
    """

    title: str
    names: Sequence[str]
    values: Sequence[Any]
    dtype: Any
    options: Options

    def reverse(self, inner: Scalar, outer: Scalar, order: int) -> list[Slope]:
        """Check reverse mode: the gradient of each order, randomly combined into the scalar function of the next order."""
        slopes_found: list[Slope] = []
        for level in range(1, order + 1):
            gradient = grad(inner, argnums=tuple(range(len(self.values))))
            slopes = gradient(*self.values)
            differences = Differences(outer, self.values, self.dtype, self.options)
            for position, slope in enumerate(slopes):
                slopes_found += differences.compare(position, self.names[position], np.asarray(slope, float), level)
            inner = _titled(_weighted(gradient, _weights(slopes, self.options.rng)), self.title)
            outer = jit(inner)
        return slopes_found

    def dot_products(self, inner: Scalar, outer: Scalar) -> Iterator[Slope]:
        """Compare forward mode along a random direction for each value with the dot product of that direction and the
        gradient."""
        differences = Differences(outer, self.values, self.dtype, self.options)
        gradient = grad(inner, argnums=tuple(range(len(self.values))))(*self.values)
        for position, value in enumerate(self.values):
            direction = np.asarray(self.options.rng.standard_normal(np.shape(value)))
            products = np.asarray(gradient[position], float) * direction
            if not products.size or not np.isfinite(products).all():
                continue
            along = float(_along(inner, position, direction.astype(np.asarray(value).dtype))(*self.values))
            size = float(np.sum(np.abs(products)))
            yield Slope(
                name=self.names[position],
                index=None,
                order=1,
                found=along,
                expected=float(np.sum(products)),
                allowed=differences.atol + 0.01 * differences.rtol * size + 8 * differences.eps * abs(differences.middle),
                what="in forward mode, beside reverse mode,",
            )

    def forward(self, inner: Scalar, outer: Scalar, order: int) -> list[Slope]:
        """Check forward mode: in each order, along a random direction for each value; the last one is differentiated for the
        next order."""
        slopes: list[Slope] = []
        for level in range(1, order + 1):
            differences = Differences(outer, self.values, self.dtype, self.options)
            for position, value in enumerate(self.values):
                direction = np.asarray(self.options.rng.standard_normal(np.shape(value)))
                slope = _along(inner, position, direction.astype(np.asarray(value).dtype))
                share = float(slope(*self.values)) / max(float(np.sum(direction * direction)), 1e-300) * direction
                name = f"{self.names[position]}, forward,"
                slopes.append(differences.slope(position, name, np.asarray(share), level, None, direction))
            inner = _titled(slope, self.title)
            outer = jit(inner)
        return slopes


def _along(function: Scalar, position: int, direction: Any) -> Scalar:
    """Return the derivative of a function along a direction of one of its values."""

    def slope(*values: Any) -> Any:
        def moved(value: Any) -> Any:
            return function(*values[:position], value, *values[position + 1 :])

        return jvp(moved, (values[position],), (direction[()],))[1]

    return slope


def _plain(f: Any) -> Any:
    """Return the NumPy function behind a function that is only compiled; None behind a gradient."""
    if not isinstance(f, Jitted):
        return f
    return _plain(f.__wrapped__) if f.is_plain else None


def _copied(x: Any) -> Any:
    """Return a copy of an array; in a trace a traced copy, which traced values can index."""
    return x.copy() if current() is None else created(as_traced(x))


def _titled(function: Scalar, title: str) -> Scalar:
    function.__name__ = title
    return function


def _weighted(gradient: Scalar, weights: Sequence[Any]) -> Scalar:
    return lambda *values: _combined(gradient(*values), weights)


def _is_float(leaf: Any) -> bool:
    dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    return dtype.kind in "fcV"


def _is_complex(leaf: Any) -> bool:
    dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    return bool(dtype.kind == "c")


def _parts(x: Any) -> Any:
    """Return the real and imaginary parts, along a new last axis."""
    return np.stack([np.real(x), np.imag(x)], -1)


def _weights(results: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    """Return the weights of the results in their sum: 1 for a single scalar, otherwise random."""
    if len(results) == 1 and not np.ndim(results[0]) and not _is_complex(results[0]):
        return [1.0]
    shapes = [(*np.shape(x), 2) if _is_complex(x) else np.shape(x) for x in results]
    return [rng.standard_normal(shape).astype(np.asarray(np.real(x)).dtype) for x, shape in zip(results, shapes, strict=True)]


def _flat_floats(results: Sequence[Any]) -> Any:
    """Return all elements of the float results in one vector."""
    return np.concatenate([np.reshape(_parts(x) if _is_complex(x) else x, (-1,)) for x in filter(_is_float, results)])


def _shape(x: Any) -> tuple[int, ...]:
    return (*np.shape(x), 2) if _is_complex(x) else np.shape(x)


def _combined(results: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Return the weighted sum of all floats among the results."""
    floats = (_parts(x) if _is_complex(x) else x for x in filter(_is_float, results))
    first, *rest = (np.sum(x * w) for x, w in zip(floats, weights, strict=True))
    for term in rest:
        first = first + term
    return first
