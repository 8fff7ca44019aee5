"""Values that are one of several, which a tag chooses at run time: None or an array, or one of a few texts.

    best = None if c else x        ->      best = Choice(tag, (None, x)), tag = 0 where c, else 1
    best is None                   ->      tag == 0

A choice is a tree of its tag and its cases, so that joins, carries and results hold it as any other tree; a caller gets the case
that the tag names. A test on the tag proves, in the blocks that it decides, which cases are possible there (``Frame.facts``). An
operation on a choice is that on its one possible case; if None is possible too, where the operation fails, a check comes first.
"""

from __future__ import annotations

import enum
import functools
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.concretize import decides
from pullback.tracer.arrays.frame import Frame, current, frame_of
from pullback.tracer.arrays.make import as_traced, cast, emit, number_of_extent
from pullback.tracer.arrays.mixed_numbers import as_condition, chosen, is_pythons
from pullback.tracer.arrays.traced import Gathers, Keyed, Listed, Tagged, TracedArray, has_rows
from pullback.tracer.arrays.tree import Container, register
from pullback.tracer.statements.catching import outcome, raise_here
from pullback.tracer.statements.unbound import UNBOUND
from pullback.tracer.syntax.table import operator as operator_
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users

MOST_CASES = 16
"""Largest number of cases of a choice."""

Facts = dict[int, tuple[TracedArray, frozenset[int]]]
"""Tags by their ids, each with the cases that are possible."""


class Choice(Tagged):
    """The value that ``tag``, a traced int, chooses of ``cases``."""

    __slots__ = ()

    def __init__(self, tag: TracedArray, cases: Sequence[Any]) -> None:
        root = frame_of().root
        if root.unwritten:
            raise TraceError(f"{root.unwritten}, whose source is not followed, may test a value that is None on one path only")
        root.has_choices = True
        self.tag, self.cases = tag, tuple(cases)

    def possible(self) -> list[int]:
        """Return the indices of the cases that are possible here."""
        cases = frozenset(range(len(self.cases)))
        if self.tag.literal is not None:
            return [int(self.tag.literal)]
        frame = current()
        while frame is not None:
            if id(self.tag) in frame.facts:
                cases &= frame.facts[id(self.tag)][1]
            frame = frame.parent
        return sorted(cases)

    def with_cases(self, cases: Sequence[Any]) -> Choice:
        return Choice(self.tag, cases)

    def proved(self) -> Any:
        """Return the value, if only one case is possible here. Raises TraceError if not."""
        cases = self.possible()
        return self.cases[cases[0]] if len(cases) == 1 else self.refuse()

    def narrowed(self) -> Any:
        cases = self.possible()
        return narrowed(self.cases[cases[0]]) if len(cases) == 1 else self

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TraceError."""
        kinds = " or ".join(described(self.cases[k]) for k in self.possible())
        raise TraceError(f"a use of a value that is {kinds}, as values decide; test which it is before")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class; for the user's code that of the value, if that is proved."""
        return type(self.proved()) if is_users(sys._getframe(1).f_code) else Choice

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        cases = [self.cases[k] for k in self.possible()]
        if all(isinstance(c, enum.Enum) for c in cases):
            return self.by_case([_of_case(getattr, c, name) for c in cases])
        return applied(lambda x: getattr(x, name), self)

    def item_in(self, mapping: dict[Any, Any]) -> Any:
        """Return the value of a key of a dict. Raises KeyError, at run time if values decide, for a key without value."""
        for k in self.possible():
            if not is_static(self.cases[k]) or self.cases[k] is UNBOUND:
                self.refuse()
            if self.cases[k] not in mapping and len(self.possible()) > 1:
                check_case(self, k, KeyError(self.cases[k]))
        return self.by_case([mapping[self.cases[k]] for k in self.possible()])

    def by_case(self, results: Sequence[Any]) -> Any:
        """Return the one of some texts, numbers or arrays that belongs to the case; they are in the order of the possible cases.
        Raises TraceError if they have several types."""
        cases = self.possible()
        if all(r is results[0] for r in results):
            return results[0]
        if all(map(is_static, results)):
            tag: Any = np.int64(len(cases) - 1)
            for j in range(len(cases) - 2, -1, -1):
                tag = np.where(self.tag == cases[j], np.int64(j), tag)
            own_tag = as_traced(tag)
            own_tag.weak = "int"
            return Choice(own_tag, results)
        arrays = list(map(as_traced, results)) if all(isinstance(r, TracedArray | bool | int | float) for r in results) else []
        if not arrays or any((x.type, x.weak) != (arrays[0].type, arrays[0].weak) for x in arrays):
            return self.refuse()
        value: Any = arrays[-1]
        for j in range(len(cases) - 2, -1, -1):
            is_case = as_traced(self.tag == cases[j])
            value = chosen(is_case, as_traced(np.where(is_case, arrays[j], value)), arrays[j], value)
        value.weak = arrays[0].weak
        return value

    def __bool__(self) -> bool:
        return bool(truth_of(self))

    def __eq__(self, other: Any) -> Any:
        return by_cases(self, lambda case: _equality(case, other))

    def __ne__(self, other: Any) -> Any:
        return by_cases(self, lambda case: _equality(case, other, is_negated=True))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__":
            return applied(functools.partial(ufunc, **{k: proved_in(v) for k, v in kwargs.items()}), *inputs)
        return getattr(ufunc, method)(*proved_in(inputs), **proved_in(kwargs))

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return function(*proved_in(args), **proved_in(kwargs))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return as_traced(self.proved())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.proved()(*args, **kwargs)

    __hash__ = __repr__ = __str__ = __format__ = __index__ = refuse


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: applied(function, *operands)


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: applied(function, other, self)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"):
    _function = getattr(operator, f"__{_name}__")
    setattr(Choice, f"__{_name}__", _operator(_function))
    setattr(Choice, f"__r{_name}__", _reflected(_function))
    setattr(Choice, f"__i{_name}__", _operator(getattr(operator, f"__i{_name}__")))
for _name in ("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem", "setitem", "contains"):
    setattr(Choice, f"__{_name}__", _operator(getattr(operator, f"__{_name}__")))
for _function in (len, iter, float, int, complex, divmod, round):
    setattr(Choice, f"__{_function.__name__}__", _operator(_function))


def _filled(data: Any, children: Sequence[Any]) -> Any:
    """Return a choice in a trace; else the case that the tag names."""
    tag, *cases = children
    if np.ndim(tag):
        raise TraceError("the structure of a value depends on values, and differs from row to row under pb.vmap")
    if isinstance(tag, TracedArray):
        return Choice(tag, cases)
    if cases[int(tag)] is UNBOUND:
        raise UnboundLocalError("cannot access local variable where it is not associated with a value")
    return cases[int(tag)]


register(
    Container(
        type=Choice, flatten=lambda c: ((c.tag, *c.cases), None), unflatten=_filled, is_selected=True, refused=(type(UNBOUND),)
    )
)


def described(case: Any) -> str:
    """Return what a case is, for errors."""
    return repr(case) if is_static(case) else "an array" if isinstance(case, TracedArray) else f"a {type(case).__name__}"


def is_static(case: Any) -> bool:
    """Return whether a case is a value without arrays that a choice may hold."""
    return case is None or case is UNBOUND or isinstance(case, str | bytes | enum.Enum)


def proved_in(value: Any) -> Any:
    """Return a value with the one possible case in place of each choice in it. Raises TraceError for another choice."""
    if isinstance(value, Tagged):
        return value.proved()
    if type(value) in (tuple, list):
        return type(value)(map(proved_in, value))
    return {k: proved_in(v) for k, v in value.items()} if type(value) is dict else value


def narrowed(value: Any) -> Any:
    """Return a value, or, if it is a choice of which one case is possible here, this case."""
    return value.narrowed() if isinstance(value, Choice) else value


def applied(function: Callable[..., Any], *operands: Any) -> Any:
    """Return ``function(*operands)``, where choices have their one case for which this does not fail.

    The other cases that are possible here fail as in plain Python: by a check at run time.
    """
    values = list(map(narrowed, operands))
    is_choice = any(isinstance(v, Choice) for v in values)
    for k, choice in enumerate(values):
        if isinstance(choice, Choice):
            examples = [list(map(_example, values[:k])), list(map(_example, values[k + 1 :]))]
            values[k] = _settled(choice, functools.partial(_tried, function, *examples))
    return _of_case(function, *values) if is_choice else function(*values)


def _of_case(function: Callable[..., Any], *values: Any) -> Any:
    """Return the result of a function on the case of a choice. Raises TraceError if it fails, as it may not be this case."""
    try:
        return function(*values)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(f"what a value may be fails: {type(error).__name__}: {error}") from error


def _tried(function: Callable[..., Any], before: Sequence[Any], after: Sequence[Any], operand: Any) -> Any:
    return function(*before, operand, *after)


def _settled(choice: Choice, attempt: Callable[[Any], Any]) -> Any:
    """Return the one case that is an array or a tree, after a check that it is the one. ``attempt`` fails for other cases."""
    cases = choice.possible()
    valued = [k for k in cases if not is_static(choice.cases[k])]
    if len(valued) != 1 or not _is_by_user():
        choice.refuse()
    for k in cases:
        if k != valued[0]:
            check_case(choice, k, _failure(choice, choice.cases[k], attempt))
    return narrowed(choice.cases[valued[0]])


def _is_by_user() -> bool:
    """Return whether the user's own code does the operation: a library's function may take what an operator does not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(_PASSED_ON):
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code)


_PASSED_ON = ("statements/choices.py", "statements/branches.py", "statements/growing.py", "arrays/replacements.py")


def _failure(choice: Choice, case: Any, attempt: Callable[[Any], Any]) -> Exception:
    """Return the exception with which an operation fails on a static case. Raises TraceError if it does not fail."""
    if case is not UNBOUND:
        try:
            attempt(case)
        except TraceError:
            raise
        except (TypeError, AttributeError, ValueError) as error:
            return error
    return choice.refuse()


def check_case(choice: Choice, k: int, error: Exception) -> None:
    """Emit a check that raises an error where a choice is case ``k``."""
    if outcome(as_traced(choice.tag != k)) is False:
        raise_here(error)
    message = error.args[0] if isinstance(error, KeyError) and isinstance(error.args[0], str) else str(error)
    emit("check", as_traced(choice.tag != k), error=type(error).__name__, message=message)
    assume_cases(frame_of(), choice.tag, frozenset(range(len(choice.cases))) - {k})


def _example(operand: Any) -> Any:
    """Return a NumPy value of the type of a traced one."""
    if isinstance(operand, Choice):
        return next((_example(c) for c in operand.cases if not is_static(c)), None)
    if not isinstance(operand, TracedArray):
        return operand
    if operand.weak:
        return {"bool": True, "int": 1, "float": 1.0, "complex": 1j}[operand.weak]
    return np.ones((1,) * operand.ndim, operand.dtype)[()]


def _equality(case: Any, other: Any, is_negated: bool = False) -> Any:
    if isinstance(other, Choice):
        return by_cases(other, lambda inner: _equality(case, inner, is_negated))
    if is_static(case) and isinstance(other, TracedArray) and not other.shape:
        return is_negated
    return case != other if is_negated else case == other


def is_(a: Any, b: Any) -> Any:
    """Return ``a is b``, of Python bools ``a == b``. Raises TraceError for arrays or numbers of which one may be the other."""
    a, b = narrowed(a), narrowed(b)
    if isinstance(a, Choice):
        return by_cases(a, lambda case: is_(case, b))
    if isinstance(b, Choice):
        return is_(b, a)
    if a is not b and _class_of(a) is _class_of(b) and _may_be_another(a) and _may_be_another(b):
        what = f"a test whether two objects of class {_class_of(a).__name__} are one, which values decide"
        raise TraceError(f"{what}; compare them by ==")
    _note_compared(a, b)
    if a is b or not (isinstance(a, TracedArray) or isinstance(b, TracedArray)):
        return a is b
    kinds = [x.weak if isinstance(x, TracedArray) else type(x).__name__ for x in (a, b)]
    if kinds == ["bool", "bool"]:
        return a == b
    if (_is_numpys_bool(a) or kinds[0] == "bool") and (_is_numpys_bool(b) or kinds[1] == "bool"):
        return _is_same_bool(as_traced(a), as_traced(b))
    if _may_be_one_argument(a, b):
        raise TraceError("a test whether two arguments are one array, which the caller decides; pass what it is for by a flag")
    if not frame_of().root.rolls:
        return False
    if isinstance(a, TracedArray) and isinstance(b, TracedArray) and bool(kinds[0]) == bool(kinds[1]):
        raise TraceError("a test whether two arrays are one object, which values may decide; compare them by ==")
    if kinds[0] == kinds[1]:
        raise TraceError(f"a test whether two Python {kinds[0]}s are one object, which no program decides; compare them by ==")
    return False


def _may_be_one_argument(a: Any, b: Any) -> bool:
    """Return whether two arrays are arguments for which the caller may pass one array."""
    arrays = [x for x in (a, b) if isinstance(x, TracedArray) and x.argument is not None]
    return len(arrays) == 2 and a.type == b.type


def _class_of(x: Any) -> type:
    """Return the class of an object, for a container of the trace the one for which it stands."""
    kind: type = getattr(type(x), "stands_for", type(x))
    return kind


def _may_be_another(x: Any) -> bool:
    """Return whether a container may be one of several after a branch or loop."""
    return not isinstance(x, TracedArray) and (id(x) in frame_of().root.names.effects.kept or bool(getattr(x, "fixed", "")))


def _note_compared(a: Any, b: Any) -> None:
    """Note that which containers of the arguments are one object decides what the function computes, if two are compared."""
    if not isinstance(a, TracedArray) and _class_of(a) is _class_of(b):
        for frame in frame_of().outward:
            if frame.stores is not None and frame.stores.holds(a) and frame.stores.holds(b):
                frame.stores.is_compared = True


def _is_same_bool(a: TracedArray, b: TracedArray) -> Any:
    """Return whether two bools are one object: they are equal, and both Python's or both NumPy's."""
    tags = is_pythons(a), is_pythons(b)
    if tags[0] is not tags[1] and isinstance(tags[0], bool) and isinstance(tags[1], bool):
        return False
    result: Any = emit("eq", *(cast(x, bool) for x in (a, b)))
    if tags[0] is not tags[1]:
        result = emit("bitand", result, emit("eq", *map(as_condition, tags)))
    result.weak = "bool"
    return result


def _is_numpys_bool(x: Any) -> bool:
    """Return whether a value is a bool of NumPy, of which there are two objects."""
    if isinstance(x, TracedArray):
        return x.dtype.kind == "b" and not (x.ndim or x.is_cell or x.weak)
    return type(x) is np.bool_


@operator_("truth")
def truth_of(value: Any) -> Any:
    """Return the truth of a choice, or of a list or an array whose length values decide, a bool or a traced one; other values
    unchanged."""
    value = narrowed(value)
    if isinstance(value, Gathers):
        value = value.elements()
    if isinstance(value, TracedArray) and any(map(is_value_size, value.shape)):
        return _truth_of_one(value)
    if has_rows(value) or issubclass(type(value), Keyed):
        return value.length() != 0
    if not isinstance(value, Choice):
        return value
    return by_cases(value, _truth_of_case)


def _truth_of_one(value: TracedArray) -> TracedArray:
    """Return the truth of the one element of an array whose shape values decide. The program raises NumPy's ValueError if it has
    another number of elements."""
    flat = as_traced(np.ravel(value))
    count = number_of_extent(flat.shape[0])
    for holds, message in ((count > 0, EMPTY), (count < 2, SEVERAL)):
        emit("check", holds, error="ValueError", message=message)
    return as_traced(flat[0] != 0)


EMPTY = "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is not empty."
SEVERAL = "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"


def _truth_of_case(case: Any) -> Any:
    return case != 0 if isinstance(case, TracedArray) and not case.shape else bool(case)


def by_cases(choice: Choice, function: Callable[[Any], Any]) -> Any:
    """Return what a function without effects returns of the case that a choice is: a bool, or a traced one."""
    cases = choice.possible()
    if current() is None or any(choice.cases[k] is UNBOUND for k in cases):
        choice.refuse()
    results = [_of_case(function, choice.cases[k]) for k in cases]
    for r in results:
        if not isinstance(r, bool | np.bool_) and not (isinstance(r, TracedArray) and not r.shape):
            choice.refuse()
    if all(not isinstance(r, TracedArray) and r == results[0] for r in results):
        return bool(results[0])
    first, *others = results[::-1]
    result = as_traced(first)
    for k, r in zip(cases[-2::-1], others, strict=True):
        result = as_traced(_selected(choice.tag == k, r, result))
    result.weak = "bool"
    true = frozenset(k for k, r in zip(cases, results, strict=True) if isinstance(r, TracedArray) or r)
    false = frozenset(k for k, r in zip(cases, results, strict=True) if isinstance(r, TracedArray) or not r)
    note(result, {id(choice.tag): (choice.tag, true)}, {id(choice.tag): (choice.tag, false)})
    return result


def _selected(test: TracedArray, result: Any, other: TracedArray) -> Any:
    """Return a result where a test holds, else another one; all are bools."""
    if isinstance(result, TracedArray):
        return np.where(test, result != 0, other != 0)
    if other.literal is not None and bool(other.literal) != bool(result):
        return test if result else np.logical_not(test)
    return np.logical_or(test, other) if result else np.logical_and(np.logical_not(test), other)


def note(test: Any, true: Facts, false: Facts) -> None:
    """Note what a traced test proves where it is true, and where it is false."""
    if isinstance(test, TracedArray) and (true or false):
        frame_of().root.tests[id(test)] = (test, true, false)


def proves(test: Any, is_true: bool) -> Facts:
    """Return what a test proves if it is true, or false."""
    noted = frame_of().root.tests.get(id(test))
    facts: Facts = {} if noted is None else noted[1 if is_true else 2]
    return facts


def all_of(*facts: Facts) -> Facts:
    """Return facts that hold together."""
    result: Facts = {}
    for each in facts:
        for key, (tag, cases) in each.items():
            result[key] = (tag, cases & result[key][1] if key in result else cases)
    return result


def assume(frame: Frame, test: Any, is_true: bool) -> None:
    """Add to the facts of a frame what a test proves if it is true, or false."""
    for tag, cases in proves(test, is_true).values():
        assume_cases(frame, tag, cases)


def assume_cases(frame: Frame, tag: TracedArray, cases: frozenset[int]) -> None:
    """Add to the facts of a frame that a tag names one of some cases."""
    frame.facts = all_of(frame.facts, {id(tag): (tag, cases)})


def contains(container: Any, item: Any) -> Any:
    """Return ``item in container``, by a comparison with each element if a traced scalar or a choice decides it."""
    item, container = narrowed(item), narrowed(container)
    if isinstance(container, Choice):
        return operator.contains(container, item)
    if isinstance(item, Choice):
        return by_cases(item, lambda case: contains(container, case))
    if type(container) in (set, frozenset, dict) and isinstance(item, TracedArray) and not item.shape:
        container = list(container)
    if has_rows(container) or issubclass(type(container), Keyed):
        return container.contains(item)
    if isinstance(container, Listed):
        container = container.contents()
    if type(container) is range and isinstance(item, TracedArray) and not item.shape and not decides(item):
        return _is_in_range(container, item)
    if type(container) not in (tuple, list) or not _is_compared(container, item):
        return item in container
    elements = list(map(narrowed, container))
    return _any(_equality(e, item) if isinstance(e, Choice) else e is item or _is_equal(item, e) for e in elements)


def _is_in_range(container: range, item: TracedArray) -> Any:
    """Return whether a number is one of a range."""
    if not container:
        return False
    least, most = sorted((container[0], container[-1]))
    is_within = np.logical_and(item >= least, item <= most)
    return _any([np.logical_and(is_within, (item - least) % abs(container.step) == 0)])


def _is_equal(item: Any, element: Any) -> Any:
    """Return whether two scalars, or tuples of scalars, are equal."""
    if type(item) is not tuple or type(element) is not tuple:
        return False if type(item) is tuple or type(element) is tuple else item == element
    if len(item) != len(element):
        return False
    result: Any = True
    for a, b in zip(item, element, strict=True):
        equal = _is_equal(a, b)
        result = np.logical_and(result, equal) if isinstance(equal, TracedArray) else result if equal else False
        if result is False:
            return False
    return result


def _is_compared(container: Sequence[Any], item: Any) -> bool:
    """Return whether the truth of ``item in container`` is known at run time alone, and its comparisons are of scalars, or of
    tuples of scalars."""
    values = [y for x in (*container, item) for y in (_scalars(x) if type(x) is tuple else [x])]
    scalars = all(not x.shape for x in values if isinstance(x, TracedArray))
    return scalars and any(isinstance(x, TracedArray | Choice) for x in values) and not any(
        isinstance(x, np.ndarray | list | tuple | dict) for x in values
    )  # fmt: skip


def _scalars(value: Any) -> list[Any]:
    """Return the items of a tuple, and of the tuples in it."""
    return [y for x in value for y in (_scalars(x) if type(x) is tuple else [x])]


def _any(results: Iterable[Any]) -> Any:
    """Return whether one of some results, bools or traced ones, is true."""
    total: Any = False
    for r in results:
        if isinstance(r, TracedArray):
            total = r != 0 if total is False else np.logical_or(total, r != 0)
        elif r:
            return True
    if isinstance(total, TracedArray):
        total.weak = "bool"
    return total


@operator_("read")
def read(value: Any, name: str) -> Any:
    """Return the value of a variable, after a check that it is bound."""
    if isinstance(value, Choice) and any(value.cases[k] is UNBOUND for k in value.possible()):
        unbound = next(k for k in value.possible() if value.cases[k] is UNBOUND)
        error = UnboundLocalError(f"cannot access local variable {name!r} where it is not associated with a value")
        if len(value.possible()) == 1:
            raise error
        check_case(value, unbound, error)
    return narrowed(value)


_AUGMENTED: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv, "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod, "Pow": operator.ipow, "MatMult": operator.imatmul, "BitAnd": operator.iand, "BitOr": operator.ior,
    "BitXor": operator.ixor, "LShift": operator.ilshift, "RShift": operator.irshift,
}  # fmt: skip


@operator_("augmented")
def augmented(name: str, value: Any, other: Any) -> Any:
    """Return what an augmented assignment binds."""
    return _AUGMENTED[name](value, other)
