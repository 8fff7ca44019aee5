"""``pb.check_grad``: gradients beside central differences, and the function beside its plain NumPy run.

The differences are of the plain function, which knows nothing of this package.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import numpy as np

from pullback.checking.control_flow_reference import in_python
from pullback.checking.divergence import Difference, diverging_line, unlike
from pullback.compiled.bound_method import Method
from pullback.compiled.function import Jitted
from pullback.debugging.check_jacobian import MOST_ENTRIES, Entries, in_single
from pullback.debugging.finite_differences import Differences, Options, Slope
from pullback.programs.call import Call
from pullback.programs.report import Report, counted
from pullback.tracer import TracedArray, TraceError, TreeDef, current, flatten, rebuild
from pullback.tracer.arrays.make import as_traced, created
from pullback.transforms.api import grad, jit
from pullback.transforms.derivatives import jvp
from pullback.tree import places

P = ParamSpec("P")
Argnums = int | tuple[int, ...] | None
Scalar = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientReport(Report):
    """What ``check_grad`` saw. ``value``: where the function differs from its plain run, or None; ``slopes``: every derivative
    that was compared; ``wrong``: those that are not right, the worst first."""

    function: str
    value: Difference | None
    slopes: tuple[Slope, ...]

    @property
    def wrong(self) -> tuple[Slope, ...]:
        return tuple(sorted((s for s in self.slopes if not s.is_right), key=lambda s: -s.excess))

    @property
    def worst(self) -> Slope | None:
        """The derivative that is furthest off for what is allowed."""
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
    """A check found a difference; ``report`` is the ``GradientReport``."""

    def __init__(self, report: GradientReport) -> None:
        super().__init__(str(report))
        self.report = report


def check_grad(
    f: Callable[P, Any], *, order: int = 1, argnums: Argnums = None, rtol: float | None = None,
    atol: float = 0.0, seed: int = 0, modes: Sequence[str] = ("rev", "jac"), f32: bool = False,
) -> Callable[P, GradientReport]:  # fmt: skip
    """A function that checks the gradient of ``f`` at the arguments of a call, for tests.

        pb.check_grad(loss)(w, x, y)
        pb.check_grad(model.predict, order=2)(x)

    First the compiled function is compared with its plain NumPy run, in which ``pb.cond``, ``pb.scan`` and the like are
    Python's branches and loops; where they differ, the first line after which a variable differs is named. Then its derivatives
    by all floats of the arguments (of those at the positions ``argnums``) are compared with central differences of the plain
    function: one by one if there are few, else along random directions, and one by one where a direction is wrong. A function
    with several results, or with arrays, is checked through a random combination of them. Complex numbers are checked as their
    parts, along a last axis of two. With ``order`` above 1 the derivatives of each gradient are compared with its differences.

    ``modes``: "rev", the gradient of each order; "jac", for the first order the whole Jacobian, entry by entry, where it has at
    most 2048, and the dot-product test, if there is a forward mode: along random directions beside reverse mode; "fwd", forward
    mode of each order along random directions beside differences. With ``f32`` the gradient is also computed in float32, and
    compared with that in float64.

    The step follows the dtype and the size of each argument; float64 is recommended, since float32 leaves two or three digits.
    ``rtol`` is by default 1e-6 (float64), 1e-2 (float32), 0.2 (below). Where a function has a corner, any slope between those
    of its two sides is right. The points and directions depend on ``seed`` alone.

    Returns a report. Raises AssertionError, whose ``report`` says the same in fields, if anything is wrong; TraceError if the
    gradient cannot be had; ValueError if there is no float to differentiate by, or none in the result.
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
    """``check_grad`` with the name, the arguments and the defaults of ``autograd.test_util.check_grads``."""
    return check_grad(f, order=order, argnums=argnum, modes=modes)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Subject:
    """A call of a function, which is checked. ``plain``: its NumPy function, None behind a gradient; ``first``: the position that
    ``argnums`` calls 0."""

    call: Call
    function: Jitted[..., Any]
    plain: Any
    first: int

    @staticmethod
    def of(f: Any, args: Any, kwargs: Any) -> _Subject:
        given = f if isinstance(f, Jitted | Method) else jit(f)
        call = given.examine(args, kwargs)
        function: Any = given.__func__ if isinstance(given, Method) else given
        return _Subject(call=call, function=function, plain=_plain(function), first=int(isinstance(given, Method)))

    def run(self, function: Any, leaves: Sequence[Any]) -> tuple[list[Any], TreeDef]:
        """What a function gives for these leaves; arrays are copied, since it may write into them."""
        found = [_copied(x) if isinstance(x, np.ndarray | TracedArray) and x.ndim else x for x in leaves]
        args, kwargs = rebuild(self.call.signature.tree, found)
        if function is not self.plain:
            return flatten(function(*args, **kwargs))
        with in_python():
            return flatten(function(*args, **kwargs))

    def difference(self) -> Difference | None:
        """Where the compiled call differs from the plain one."""
        if self.plain is None:
            return None
        call = self.call
        expected, expected_tree = self.run(self.plain, call.leaves)
        found, found_tree = self.run(self.function, call.leaves)
        names = [f"result{at}" for at in places(expected_tree, "")]
        pairs = zip(names, found, expected, strict=False)
        wrong = next(((name, differ) for name, a, b in pairs if (differ := unlike(a, b)) is not None), None)
        if wrong is None and found_tree != expected_tree:
            wrong = "result", (str(found_tree), str(expected_tree))
        if wrong is None:
            return None
        name, (was, should) = wrong
        line = diverging_line(call, lambda: self.run(self.plain, call.leaves))
        return line or Difference(what=name, file="", line=0, source="", found=was, expected=should)

    def slopes(self, order: int, argnums: Argnums, options: Options, modes: Sequence[str], f32: bool) -> list[Slope]:
        """The derivatives up to an order, each beside its difference quotient."""
        title, leaves = self.call.title, self.call.leaves
        names = [a.name for a in self.call.arguments if not a.is_static]
        chosen = [k for k in self.positions(argnums) if _is_float(leaves[k])]
        if not chosen:
            raise ValueError(f"{title} has no float argument to differentiate by")
        found, tree = self.run(self.function, leaves)
        shapes = [(n, _shape(x)) for n, x in zip((f"result{at}" for at in places(tree, "")), found, strict=True) if _is_float(x)]
        results = [x for x in found if _is_float(x)]
        if not results:
            raise ValueError(f"{title} has no float result to differentiate")
        weights = _weights(results, options.rng)

        def given(function: Any, made: Callable[[Sequence[Any]], Any]) -> Scalar:
            def call(*values: Any) -> Any:
                whole = list(leaves)
                for k, value in zip(chosen, values, strict=True):
                    whole[k] = value[..., 0] + 1j * value[..., 1] if _is_complex(leaves[k]) else value
                return made(self.run(function, whole)[0])

            return _titled(call, title)

        def scalar(function: Any) -> Scalar:
            return given(function, lambda found: _combined(found, weights))

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
                slopes += check.dots(inner, outer)
        vector = given(self.function, _in_a_row)
        plain = jit(vector) if self.plain is None else given(self.plain, _in_a_row)
        entries = Entries(
            vector=vector, plain=plain, names=check.names, values=values, results=shapes, dtype=coarsest, options=options
        )
        if "jac" in modes and entries.count <= MOST_ENTRIES and not ("rev" in modes and entries.is_gradient):
            slopes += entries.slopes()
        if f32:
            slopes += in_single(inner, values, check.names, grad(inner, argnums=tuple(range(len(values))))(*values), options)
        return slopes

    def positions(self, argnums: Argnums) -> list[int]:
        """The leaves of the arguments at some positions; of all of them if None."""
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
    """Derivatives of a function of ``values``, called ``names``, that gives one number: ``inner``, beside difference quotients of
    ``outer``, which gives the same."""

    title: str
    names: Sequence[str]
    values: Sequence[Any]
    dtype: Any
    options: Options

    def reverse(self, inner: Scalar, outer: Scalar, order: int) -> list[Slope]:
        """In reverse mode: of each order the gradient; it is combined for the next."""
        found: list[Slope] = []
        for level in range(1, order + 1):
            gradient = grad(inner, argnums=tuple(range(len(self.values))))
            slopes = gradient(*self.values)
            differences = Differences(outer, self.values, self.dtype, self.options)
            for position, slope in enumerate(slopes):
                found += differences.beside(position, self.names[position], np.asarray(slope, float), level)
            inner = _titled(_weighted(gradient, _weights(slopes, self.options.rng)), self.title)
            outer = jit(inner)
        return found

    def dots(self, inner: Scalar, outer: Scalar) -> Iterator[Slope]:
        """Forward mode along a random direction for each value, beside the product of that direction with the gradient."""
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
        """In forward mode: of each order, along a random direction for each value; the last is differentiated for the next."""
        found: list[Slope] = []
        for level in range(1, order + 1):
            differences = Differences(outer, self.values, self.dtype, self.options)
            for position, value in enumerate(self.values):
                direction = np.asarray(self.options.rng.standard_normal(np.shape(value)))
                slope = _along(inner, position, direction.astype(np.asarray(value).dtype))
                share = float(slope(*self.values)) / max(float(np.sum(direction * direction)), 1e-300) * direction
                name = f"{self.names[position]}, forward,"
                found.append(differences.slope(position, name, np.asarray(share), level, None, direction))
            inner = _titled(slope, self.title)
            outer = jit(inner)
        return found


def _along(function: Scalar, position: int, direction: Any) -> Scalar:
    """The derivative of a function along a direction of one of its values."""

    def slope(*values: Any) -> Any:
        def moved(value: Any) -> Any:
            return function(*values[:position], value, *values[position + 1 :])

        return jvp(moved, (values[position],), (direction[()],))[1]

    return slope


def _plain(f: Any) -> Any:
    """The NumPy function behind a function that is compiled and no more; None behind a gradient."""
    if not isinstance(f, Jitted):
        return f
    return _plain(f.__wrapped__) if f.is_plain else None


def _copied(x: Any) -> Any:
    """A copy of an array; in a trace a traced one, which traced values can index."""
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
    """The real and the imaginary part, along a last axis."""
    return np.stack([np.real(x), np.imag(x)], -1)


def _weights(results: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    """What results are multiplied with before they are added: 1 for a single number, else random."""
    if len(results) == 1 and not np.ndim(results[0]) and not _is_complex(results[0]):
        return [1.0]
    shapes = [(*np.shape(x), 2) if _is_complex(x) else np.shape(x) for x in results]
    return [rng.standard_normal(shape).astype(np.asarray(np.real(x)).dtype) for x, shape in zip(results, shapes, strict=True)]


def _in_a_row(results: Sequence[Any]) -> Any:
    """All elements of the floats among some results."""
    return np.concatenate([np.reshape(_parts(x) if _is_complex(x) else x, (-1,)) for x in filter(_is_float, results)])


def _shape(x: Any) -> tuple[int, ...]:
    return (*np.shape(x), 2) if _is_complex(x) else np.shape(x)


def _combined(results: Sequence[Any], weights: Sequence[Any]) -> Any:
    """The sum of all floats among some results, each times its weight."""
    floats = (_parts(x) if _is_complex(x) else x for x in filter(_is_float, results))
    first, *rest = (np.sum(x * w) for x, w in zip(floats, weights, strict=True))
    for term in rest:
        first = first + term
    return first
