"""Twins: replacements of library functions in a traced program, looked up by identity.

A function of NumPy or SciPy without a twin runs unchanged; where it cannot take traced values, the error names it.
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from types import CellType, FunctionType, MethodType, TracebackType
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.labelled import (
    CONVERTING,
    Labelled,
    apply_function,
    apply_ufunc,
    holds_labelled,
    is_labelled,
    labelled_in,
    refusal_of,
)
from pullback.tracer.arrays.make import as_traced, holds_static_int, holds_traced, static_ints
from pullback.tracer.arrays.masked import Selection, gathered, holds_selection, of_selections
from pullback.tracer.arrays.number_types import MARK
from pullback.tracer.arrays.promotion import op_of, unsupported
from pullback.tracer.arrays.tables import FUNCTIONS, hook
from pullback.tracer.arrays.traced import TracedArray, has_rows
from pullback.tracer.arrays.ufuncs import call_op
from pullback.tracer.user_code.errors import TraceError, foreign_call, recording_errors, user_loc
from pullback.tracer.user_code.ownership import is_hidden_file, is_users_object

# Filled by pullback.tracer.functions.
TWINS: dict[int, tuple[Any, Any]] = {}
KINDS: dict[type, Callable[[Any, Any], Any]] = {}

_CALLS: dict[str, Any] = {}
_CONVERSIONS: dict[type, Callable[..., Any]] = {}
_late: dict[str, dict[str, Any]] = {}
_late_kinds: dict[str, dict[str, Any]] = {}
_settling = threading.RLock()


def twin(*functions: Any) -> Callable[[Any], Any]:
    """Decorate a function that replaces these in traced programs, for any arguments.

    A function of a library that is not imported yet, or that some versions lack, is passed by its dotted name.
    """

    def register(replacement: Any) -> Any:
        for function in functions:
            if isinstance(function, str):
                _put(_late, function, replacement)
            else:
                TWINS[id(function)] = (function, _with_labelled(function, replacement))
        return replacement

    return register


def twin_of(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that replaces the functions with these dotted names in calls with traced arguments."""

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _put(_late, name, _TracedOnly(replacement))
        return replacement

    return register


def twin_in(module: str, *functions: str) -> None:
    """Declare that a module, when imported, registers the twins of these functions, passed by their dotted names.

    It is imported when a traced program first uses one of them.
    """
    for name in functions:
        _put(_late, name, _LateTwin(module))


def kind_twin(*names: str) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Decorate ``make(object, names of the trace)``, which returns the replacement of an outside object of these classes."""

    def register(make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        for name in names:
            _put(_late_kinds, name, make)
        return make

    return register


MEMBERS: dict[tuple[str, str], Callable[[Any], Any]] = {}


def member_twin(module: str, name: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorate ``make(names of the trace)``, which returns the replacement of a library module's attribute that has another
    value at each call, or None."""

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        MEMBERS[module, name] = make
        return make

    return register


def call_of(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that replaces a builtin type in calls."""

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        _CALLS[name + MARK] = replacement
        return replacement

    return register


def called(value: Any) -> Any:
    """Return the replacement of a NumPy number type in calls; other values unchanged."""
    return _CONVERSIONS[value] if isinstance(value, type) and value in _CONVERSIONS else value


def converts(kinds: Iterable[type], make: Callable[[Any], Callable[..., Any]]) -> None:
    """Register ``make(kind)`` as the replacement of each of these NumPy number types in calls."""
    _CONVERSIONS.update((kind, make(kind)) for kind in kinds)


SEQUENCES: dict[Any, Callable[..., Any]] = {}
"""The functions of sequences of arrays, each with a function of the array that stacks them along its first axis."""


def _with_labelled(function: Any, replacement: Any) -> Any:
    """Return a twin that passes calls with libraries' objects on to ``apply_function``."""
    module = getattr(function, "__module__", None) or ""
    if not isinstance(replacement, FunctionType) or module.partition(".")[0] not in _NUMERIC:
        return replacement

    @functools.wraps(replacement)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and has_rows(args[0]) and function in SEQUENCES:
            return SEQUENCES[function](args[0].array(), *args[1:], **kwargs)
        args = tuple(map(_without_rows, args))
        if not (holds_labelled(args) or holds_labelled(kwargs)):
            return replacement(*args, **kwargs)
        if function in CONVERTING or _is_traced(args, kwargs):
            return apply_function(function, replacement, args, kwargs)
        return _call_static(function, args, kwargs)

    call.__wrapped__ = function
    return call


def _without_rows(x: Any) -> Any:
    """Return an argument with arrays in place of the lists with rows in it, which may be in a list or tuple."""
    if has_rows(x):
        return x.array()
    return type(x)(map(_without_rows, x)) if type(x) in (list, tuple) and any(map(has_rows, x)) else x


def _is_traced(args: Any, kwargs: Any) -> bool:
    return takes_traced(args, kwargs) or _stands_for_labelled(args) or _stands_for_labelled(kwargs)


class _TracedOnly:
    """Marks a function that replaces another only in calls with traced arguments."""

    def __init__(self, replacement: Callable[..., Any]) -> None:
        self.replacement = replacement


class _LateTwin:
    """A placeholder for a twin that the module of this name registers when it is imported."""

    def __init__(self, module: str) -> None:
        self.module = module


def _put(table: dict[str, dict[str, Any]], dotted: str, value: Any) -> None:
    module, _, name = dotted.rpartition(".")
    table.setdefault(module, {})[name] = value


def _resolve_late() -> None:
    """Resolve late names of modules imported since."""
    with _settling:
        for table in (_late, _late_kinds):
            for module in [m for m in table if m in sys.modules]:
                for name, value in list(table[module].items()):
                    real = getattr(sys.modules[module], name, None)
                    if real is None:
                        continue
                    if table is _late_kinds:
                        KINDS[real] = value
                    elif isinstance(value, _TracedOnly):
                        TWINS[id(real)] = (real, _dispatching(real, value.replacement))
                    else:
                        TWINS[id(real)] = (real, _with_labelled(real, value))
                    del table[module][name]
                if not table[module]:
                    del table[module]


def traced_builtins() -> dict[str, Any]:
    """Return the builtins that have twins, and the replacements of builtin types in calls."""
    twins = {name: TWINS[id(value)][1] for name, value in vars(builtins).items() if id(value) in TWINS}
    return {**twins, **_CALLS}


def library_twin(value: Any) -> Any:
    """Return the traced twin of a library's function, or None."""
    _resolve_late()
    entry = TWINS.get(id(value))
    if entry is not None and isinstance(entry[1], _LateTwin):
        import_module(entry[1].module)
        _resolve_late()
        entry = TWINS[id(value)]
    if entry is not None:
        return entry[1]
    if isinstance(value, np.ufunc):
        return _Ufunc(value)
    if isinstance(value, type) or not callable(value):
        return None
    op = op_of(value)
    if op is not None:
        return functools.partial(call_op, op)
    if not hasattr(value, "__name__") or (getattr(value, "__module__", None) or "").partition(".")[0] not in _NUMERIC:
        return None
    if value in FUNCTIONS:
        return _dispatching(value, FUNCTIONS[value])
    return _followed(value) if _is_followed(value) else _untraced(value)


@hook("twin_of_ufunc")
def twin_of_ufunc(ufunc: np.ufunc) -> Any:
    """Return the twin of a ufunc that a library's own code called with a traced array, or None."""
    replacement = library_twin(ufunc)
    return None if isinstance(replacement, _Ufunc) else replacement


FOLLOWED = ("numpy.polynomial.",)
"""Modules whose functions are written in NumPy alone: functions without a twin are followed like the user's own."""


def _is_followed(value: Any) -> bool:
    return value.__module__.startswith(FOLLOWED) and isinstance(_implementation(value), FunctionType)


def _implementation(function: Any) -> Any:
    """Return the implementation behind NumPy's ``__array_function__`` dispatch."""
    return getattr(function, "_implementation", function)


@functools.lru_cache(maxsize=4096)
def _followed(function: Any) -> Any:
    """Return a library's function that, in calls with traced arguments, runs as a copy that resolves its names in the trace."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        return frame_of().root.names.follow_library(_implementation(function))(*args, **kwargs)

    return _dispatching(function, traced)


_NUMERIC = ("numpy", "scipy")


class _Ufunc:
    """A ufunc that also takes lists containing traced arrays, which NumPy would convert."""

    __class__ = property(lambda self: np.ufunc)

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(map(holds_labelled, args)) and (takes_traced(args, kwargs) or any(type(a) is Labelled for a in args)):
            if kwargs or self._ufunc.nin < len(args) or not any(map(is_labelled, args)):
                raise refusal_of(next(labelled_in(args)), f"np.{self._ufunc.__name__} with such arguments of")
            return apply_ufunc(self._ufunc, args, is_operator=False)
        if any(isinstance(a, list | tuple) and holds_traced(a) for a in args):
            args = tuple(as_traced(a) if isinstance(a, list | tuple) else a for a in args)
        return self._ufunc(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)

    def __eq__(self, other: object) -> bool:
        return self._ufunc is getattr(other, "_ufunc", other)

    def __hash__(self) -> int:
        return hash(self._ufunc)

    def __repr__(self) -> str:
        return repr(self._ufunc)


def real_function(value: Any) -> Any:
    """Return the library's function behind its replacement; other values unchanged."""
    if type(value) is _Ufunc:
        return value._ufunc
    is_ours = isinstance(value, FunctionType) and value.__globals__ is globals()
    return getattr(value, "__wrapped__", value) if is_ours else value


def instance_twin(value: Any, names: Any) -> Any:
    """Return the replacement of an outside object of a library's class, or None."""
    if isinstance(value, MethodType):
        owner = instance_twin(value.__self__, names)
        return None if owner is None else getattr(owner, value.__name__)
    _resolve_late()
    make = next((KINDS[k] for k in type(value).__mro__ if k in KINDS), None)
    return None if make is None else make(value, names)


def takes_traced(args: Any, kwargs: Any) -> bool:
    """Return whether the arguments of a call contain a traced array, in lists and dicts too."""
    return any(map(_holds_traced, args)) or any(map(_holds_traced, kwargs.values()))


def _stands_for_labelled(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if has_rows(value):
        return False
    return any(map(_stands_for_labelled, value)) if isinstance(value, list | tuple) else type(value) is Labelled


def _overrides_functions(value: Any) -> bool:
    """Return whether a value, or an item of a list, overrides NumPy's functions."""
    if isinstance(value, list | tuple) and not has_rows(value):
        return any(map(_overrides_functions, value))
    kind = type(value)
    if kind is TracedArray or isinstance(value, np.ndarray):
        return False
    return kind is Selection or (hasattr(kind, "__array_function__") and is_users_object(value))


def _holds_traced(value: Any) -> bool:
    return any(map(_holds_traced, value.values())) if isinstance(value, dict) else holds_traced(value)


@functools.lru_cache(maxsize=4096)
def _dispatching(function: Any, traced: Callable[..., Any]) -> Any:
    """Return a library's function that calls ``traced`` if arguments, or items of lists, are traced."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if holds_labelled(args) or holds_labelled(kwargs):
            is_traced = _is_traced(args, kwargs)
            return apply_function(function, traced, args, kwargs) if is_traced else _call_static(function, args, kwargs)
        if holds_selection((args, kwargs)):
            return of_selections(function, traced, args, kwargs)
        is_traced = takes_traced(args, kwargs) and not any(map(_overrides_functions, args))
        return traced(*args, **kwargs) if is_traced else _call_static(function, args, kwargs)

    return call


@functools.lru_cache(maxsize=4096)
def foreign_function(function: Any, library: str) -> Any:
    """Return a library's compiled function, made to raise for traced arrays, which it cannot take."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_traced(args, kwargs):
            raise TraceError(foreign_call(library, function.__name__))
        return function(*args, **kwargs)

    return call


def _call_static(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a function without traced arguments. For symbolic numbers the result is symbolic."""
    return lifted(function, *args, **kwargs)


@functools.lru_cache(maxsize=4096)
def _untraced(function: Any) -> Any:
    """Return a library's function; an error of it on traced values says that it is not supported."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and _stands_for_owner(args[0], function):
            return getattr(args[0], function.__name__)(*args[1:], **kwargs)
        if _stands_for_labelled(args) or _stands_for_labelled(kwargs):
            return apply_function(function, None, args, kwargs)
        if not holds_static_int((args, kwargs)):
            return _call_untraced(function, args, kwargs)
        try:
            with recording_errors([]):
                return _call_untraced(function, args, kwargs)
        except TraceError:
            return _call_untraced(function, *static_ints((args, kwargs)))

    return call


def _call_untraced(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a library's function. Raises that it is not supported if it fails on traced values."""
    if is_driver(function) and any(map(_reads_traced, (*args, *kwargs.values()))):
        raise TraceError(unsupported(function))
    if holds_selection((args, kwargs)):
        args, kwargs = gathered(args), {k: gathered(v) for k, v in kwargs.items()}
    loc, noted = user_loc(), list[TraceError]()
    try:
        with recording_errors(noted):
            result = _call_static(function, args, kwargs)
    except Exception as error:
        is_users = _reached_user(error.__traceback__)
        if is_users or not (noted or isinstance(error, TraceError) or takes_traced(args, kwargs)):
            raise
        raise TraceError(unsupported(function)) from error
    if noted:
        raise noted[0] if (noted[0].file, noted[0].line) != (loc.file, loc.line) else TraceError(unsupported(function))
    return result


def is_driver(function: Any) -> bool:
    """Return whether a library's function calls its function arguments from compiled code, which prints their errors."""
    return (getattr(function, "__module__", None) or "").startswith(("scipy.optimize", "scipy.integrate"))


def _reads_traced(value: Any) -> bool:
    """Return whether a user's function captures a traced value in its closure or defaults."""
    if not isinstance(value, FunctionType):
        return False
    cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
    return any(map(holds_traced, (*cells, *(value.__defaults__ or ()))))


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _stands_for_owner(value: Any, function: Any) -> bool:
    """Return whether a value stands for an object of a library's class of which the function is a method."""
    owner = value.__class__
    if owner is type(value) or getattr(owner, function.__name__, None) is not function:
        return False
    return any(kind in KINDS for kind in owner.__mro__)


def _reached_user(traceback: TracebackType | None) -> bool:
    """Return whether an error was raised in the user's code, called by a library."""
    while traceback is not None:
        if not is_hidden_file(traceback.tb_frame.f_code.co_filename):
            return True
        traceback = traceback.tb_next
    return False
