"""The tracer's second door: names. The user's functions run as copies whose globals and closures resolve through here.

NumPy's and SciPy's objects are replaced by traced twins, by identity. What comes from outside is recorded: arrays and
floating-point numbers become inputs that are read anew at each call, every other value a guard that is checked at each
call. Library code is not followed and nothing is patched; a store to the outside is a TraceError.
"""

from __future__ import annotations

import builtins
import enum
import functools
import math
import re
import sys
import sysconfig
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from pullback.ir import Value
from pullback.ir.op import resolve
from pullback.ir.types import dtype_of
from pullback.tracer.array import CAPTURED, FUNCTIONS, TracedArray, holds_traced, literal_type
from pullback.tracer.errors import TraceError, is_hidden, user_loc
from pullback.tracer.frame import Captured, Frame, digest
from pullback.tracer.outside import RANDOM, Outside, OutsideObject, Refused, module_file, module_stand_in
from pullback.tracer.promotion import op_of
from pullback.tracer.tree import leaf_key, same_container, static_key
from pullback.tracer.ufuncs import call_op

Read = Callable[[], Any]

# Captured arrays of ints and bools up to this size may stand where a static array is needed: a mask, a count of repeats.
MOST_STATIC = 4096

# Filled by pullback.tracer.functions: what stands for a NumPy or SciPy function in a traced program, by identity.
TWINS: dict[int, tuple[Any, Any]] = {}


_late: dict[str, Any] = {}


def twin(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function replaces these in traced programs, whatever their arguments.

    A function of a library that is not imported yet is given by its dotted name.
    """

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            if isinstance(function, str):
                _late[function] = replacement
            else:
                TWINS[id(function)] = (function, replacement)
        return replacement

    return register


@dataclass(frozen=True, kw_only=True, eq=False)
class Guard:
    """Something outside that the trace depends on: ``read()`` must still be ``expected``.

    ``how``: "identity", "value" (same type and value) or "container" (same type, length and keys).
    """

    read: Read
    expected: Any
    how: str
    describe: str

    def holds(self) -> bool:
        try:
            value = self.read()
        except (KeyError, IndexError, AttributeError, ValueError):
            return False
        if value is self.expected and self.how != "container":
            return True
        match self.how:
            case "value":
                return type(value) is type(self.expected) and bool(static_key(value) == static_key(self.expected))
            case "container":
                return same_container(value, self.expected)
        return False


class Namespace(dict[str, Any]):
    """The globals of a followed function. Stored keys are ``__builtins__`` and what the function stored itself."""

    def __init__(self, real: dict[str, Any], names: Names) -> None:
        super().__init__(__builtins__=names.builtins, __name__=real.get("__name__"))
        self.real = real
        self.names = names
        self.found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self.found:
            return self.found[name]
        self.refuse_stores()
        value = self.real[name]
        found = self.found[name] = self.names.resolve(value, functools.partial(self.real.__getitem__, name), name)
        return found

    def refuse_stores(self) -> None:
        """Raises TraceError if the function has stored a global."""
        for name in self:
            if name not in ("__builtins__", "__name__"):
                raise TraceError(f"the traced function writes the global {name}; return the value instead")


class Names:
    """The outside of one trace: what was resolved, the guards, and where the captured inputs came from."""

    def __init__(self, root: Frame) -> None:
        self.root = root
        self.guards: dict[Any, Guard] = {}
        self.builtins = {**vars(builtins), "isinstance": _isinstance, "__import__": self._import}
        self._kept: dict[int, tuple[Any, Any]] = {}
        self._namespaces: dict[int, Namespace] = {}
        self._cells: dict[int, tuple[CellType, CellType, Any]] = {}
        self._captured: dict[Value, tuple[Read, Any, str]] = {}
        self._copies: list[tuple[Any, Any, str]] = []

    def follow(self, function: Any) -> Any:
        """A copy of a user's function, method, partial or callable object that resolves its names here."""
        match function:
            case FunctionType():
                if isinstance(function.__globals__, Namespace) and function.__globals__.names is self:
                    return function
                return self._keep(function, self._copy) if is_users(function.__code__) and supported() else function
            case MethodType():
                owner = self.instance(function.__self__) if is_users_object(function.__self__) else function.__self__
                inner = self.follow(function.__func__)
                return MethodType(inner, owner) if inner is not function.__func__ else function
            case functools.partial():
                read = functools.partial(getattr, function, "args")
                args = [self.resolve(a, _item(read, i), f"args[{i}]", guard=False) for i, a in enumerate(function.args)]
                keywords = {
                    k: self.resolve(v, _item(lambda: function.keywords, k), k, guard=False) for k, v in function.keywords.items()
                }
                return functools.partial(self.follow(function.func), *args, **keywords)
        wrapped = getattr(function, "__wrapped__", None)
        if type(function).__module__ == "functools" and isinstance(wrapped, FunctionType):
            return self.follow(wrapped)
        return self.instance(function) if is_users_object(function) else function

    def resolve(self, value: Any, read: Read, describe: str, guard: bool = True) -> Any:
        """What stands for an outside value in the trace; records the guard or input it makes."""
        if isinstance(value, TracedArray | Outside | Refused):
            return value
        is_plain = type(value) is float and value in _REWRITTEN
        if isinstance(value, float | np.generic | np.ndarray) and not is_plain and capturable(value):
            return self._capture(value, read, describe)
        if type(value) in (list, tuple, dict, OrderedDict) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return self._container(value, read, describe)
        if guard:
            how = "value" if isinstance(value, int | float | complex | str | bytes | None) else "identity"
            self._guard(Guard(read=read, expected=value, how=how, describe=describe))
        return self.replacement(value, describe)

    def replacement(self, value: Any, describe: str) -> Any:
        """What stands for a library's object, a function, a module or an object."""
        if isinstance(value, ModuleType):
            return self._keep(value, lambda m: module_stand_in(m, self, _is_library_file(getattr(m, "__file__", None))))
        found = library_twin(value)
        if found is not None:
            return found
        if isinstance(value, np.random.Generator | np.random.RandomState) or _is_random(value):
            return Refused(f"a random draw ({describe}): {RANDOM}")
        if isinstance(value, FunctionType | MethodType | functools.partial) or is_users_object(value) or _is_cached(value):
            return self.follow(value)
        return value

    def instance(self, value: Any) -> Any:
        """A stand-in for an object of a user's class."""
        return self._keep(value, lambda v: OutsideObject(v, self))

    def argument(self, value: Any) -> Any:
        """What stands for a static argument: functions are followed, objects of the user's read through a stand-in."""
        if isinstance(value, FunctionType | MethodType | functools.partial) or is_users_object(value):
            return self.replacement(value, type(value).__name__)
        return value

    def pin(self, source: Value) -> None:
        """Makes a guard of a captured scalar or mask that was used where a static value is needed."""
        read, value, describe = self._captured[source]
        if isinstance(value, np.ndarray):
            self._guard(Guard(read=lambda: _contents(read()), expected=_contents(value), how="value", describe=describe))
            return
        self._guard(Guard(read=read, expected=value, how="value", describe=describe))

    def finish(self) -> None:
        """Raises TraceError if the function changed something outside."""
        for namespace in self._namespaces.values():
            namespace.refuse_stores()
        for _, new, content in self._cells.values():
            if content is not _EMPTY and new.cell_contents is not content:
                raise TraceError("the traced function writes a nonlocal variable; return the value instead")
        for made, filled, describe in self._copies:
            if not _same_items(made, filled):
                raise TraceError(f"the traced function changes {describe}, which comes from outside; return the value instead")

    def _guard(self, guard: Guard) -> None:
        self.guards.setdefault((guard.describe, id(guard.expected), guard.how), guard)

    def _keep(self, value: Any, make: Callable[[Any], Any]) -> Any:
        found = self._kept.get(id(value))
        if found is None:
            found = self._kept[id(value)] = (value, make(value))
        return found[1]

    def _copy(self, function: FunctionType) -> FunctionType:
        real = function.__globals__.real if isinstance(function.__globals__, Namespace) else function.__globals__
        namespace = self._namespaces.setdefault(id(real), Namespace(real, self))
        cells = [self._cell(c, n) for c, n in zip(function.__closure__ or (), function.__code__.co_freevars)]
        copy = FunctionType(function.__code__.replace(), namespace, function.__name__, None, tuple(new for new, _ in cells))
        self._kept[id(function)] = (function, copy)
        for _, fill in cells:
            fill()
        copy.__dict__.update(function.__dict__)
        copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
        name = function.__name__
        if function.__defaults__ is not None:
            read = functools.partial(getattr, function, "__defaults__")
            self._guard(Guard(read=read, expected=function.__defaults__, how="identity", describe=f"{name}.__defaults__"))
            copy.__defaults__ = tuple(self._default(d, _item(read, i)) for i, d in enumerate(function.__defaults__))
        if function.__kwdefaults__ is not None:
            read = functools.partial(getattr, function, "__kwdefaults__")
            copy.__kwdefaults__ = {k: self._default(d, _item(read, k)) for k, d in function.__kwdefaults__.items()}
        return copy

    def _default(self, value: Any, read: Read) -> Any:
        if isinstance(value, np.ndarray):
            return self.resolve(value, read, "a default")
        return value if isinstance(value, int | float | str | None) else self.replacement(value, "a default")

    def _cell(self, cell: CellType, name: str) -> tuple[CellType, Callable[[], None]]:
        """The copy of a cell, and what fills it."""
        known = self._cells.get(id(cell))
        if known is not None:
            return known[1], lambda: None
        new = CellType()
        self._cells[id(cell)] = (cell, new, _EMPTY)

        def fill() -> None:
            try:
                value = cell.cell_contents
            except ValueError:
                return
            found = self.resolve(value, lambda: cell.cell_contents, name)
            new.cell_contents = found
            self._cells[id(cell)] = (cell, new, found)

        return new, fill

    def _capture(self, value: Any, read: Read, describe: str) -> TracedArray:
        found = self._captured_before(value, read, describe)
        if found is not None:
            return found
        array_type, weak = literal_type(value)
        name = re.sub(r"\W+", "_", describe).strip("_")
        parameter = self.root.parameter(array_type, name)
        self.root.inputs.append(Captured(read=read, describe=describe, key=leaf_key(value), value=value))
        traced = TracedArray(array_type, self.root, parameter, weak=weak, readonly=CAPTURED, loc=user_loc())
        if not isinstance(value, np.ndarray) or (value.dtype.kind in "biu" and value.size <= MOST_STATIC):
            self._captured[parameter] = (read, value, describe)
            traced.known = (value, frozenset({parameter}))
        if isinstance(value, np.ndarray):
            self._kept[id(value)] = (value, traced)
        return traced

    def _captured_before(self, value: Any, read: Read, describe: str) -> TracedArray | None:
        """Two names of one array are one input, guarded by their being one array."""
        if not isinstance(value, np.ndarray) or id(value) not in self._kept:
            return None
        found: TracedArray = self._kept[id(value)][1]
        self._guard(Guard(read=read, expected=value, how="identity", describe=describe))
        original = next(i for i, p in zip(self.root.inputs, self.root.parameters) if p is found.value)
        if isinstance(original, Captured):
            self._guard(Guard(read=original.read, expected=value, how="identity", describe=original.describe))
        return found

    def _container(self, value: Any, read: Read, describe: str) -> Any:
        self._guard(Guard(read=read, expected=_shell(value), how="container", describe=describe))
        if isinstance(value, Mapping):
            kind: Any = type(value)
            made: Any = kind((k, self.resolve(v, _item(read, k), f"{describe}[{k!r}]")) for k, v in value.items())
        else:
            items = [self.resolve(v, _item(read, i), f"{describe}[{i}]") for i, v in enumerate(value)]
            made = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(made, list | dict):
            self._copies.append((made, made.copy(), describe))
        return made

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        real = globals.real if isinstance(globals, Namespace) else globals
        return self.replacement(builtins.__import__(name, real, locals, fromlist, level), name)


_EMPTY = object()

# Numbers that rewrites look for (x ** 2, 0.5 * x): constants with a guard rather than inputs.
_REWRITTEN = frozenset({0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -0.5, -1.0, -2.0})


def _shell(value: Any) -> Any:
    """A container of the same type, length and keys that holds nothing else."""
    kind: Any = type(value)
    if isinstance(value, Mapping):
        return kind((k, None) for k in value)
    return kind(*[None] * len(value)) if hasattr(value, "_fields") else kind([None] * len(value))


def _same_items(a: Any, b: Any) -> bool:
    if len(a) != len(b) or (isinstance(a, Mapping) and list(a) != list(b)):
        return False
    pairs = zip(a.values(), b.values()) if isinstance(a, Mapping) else zip(a, b)
    return all(x is y for x, y in pairs)


def _item(read: Read, key: Any) -> Read:
    return lambda: read()[key]


def capturable(value: Any) -> bool:
    """Whether an outside number or array can be an input: of a dtype that can be compiled, and no subclass."""
    if isinstance(value, np.ma.MaskedArray | np.matrix):
        return False
    try:
        dtype_of(np.asarray(value).dtype)
    except TypeError:
        return False
    return np.asarray(value).dtype.kind != "c"


# whose code and objects

_LIBRARY = tuple({sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")})


@functools.lru_cache(maxsize=4096)
def _is_library_file(name: str | None) -> bool:
    return name is not None and (name.startswith(_LIBRARY) or "site-packages" in name or "dist-packages" in name)


@functools.lru_cache(maxsize=4096)
def is_users(code: CodeType) -> bool:
    """Whether code is the user's own: not of Python, of an installed package, or of this one."""
    return not is_hidden(code) and not _is_library_file(code.co_filename)


_NO_OBJECTS = (type, ModuleType, FunctionType, BaseException, dict, list, tuple, set, frozenset, int, float, str)


def is_users_object(value: Any) -> bool:
    """Whether a value is an object with attributes, of a class that the user wrote."""
    kind = type(value)
    if isinstance(value, _NO_OBJECTS):
        return False
    if kind.__module__ in sys.stdlib_module_names or kind.__module__.partition(".")[0] in ("pullback", "numpy", "scipy"):
        return kind.__module__ == "__main__"
    return hasattr(value, "__dict__") and not isinstance(value, enum.Enum) and not _is_library_file(module_file(kind))


@functools.lru_cache(maxsize=1)
def supported() -> bool:
    """Whether this Python looks globals up through a subclass of dict, in nested functions too."""

    class Probe(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return {"probe": 7, "range": range}[name]

    made: dict[str, Any] = {}
    exec("def f():\n  g = lambda: [probe for _ in range(1)]\n  return g()[0] + probe", made)
    try:
        probe = FunctionType(made["f"].__code__, Probe(__builtins__=vars(builtins)))
        return bool(probe() == 14)
    except (KeyError, NameError):
        return False


def _is_random(value: Any) -> bool:
    owner = getattr(value, "__self__", None)
    module = getattr(value, "__module__", None) or ""
    return isinstance(owner, np.random.RandomState | np.random.Generator) or (
        isinstance(value, BuiltinFunctionType | FunctionType | MethodType) and module in ("random", "secrets")
    )


def _is_cached(value: Any) -> bool:
    return type(value).__module__ == "functools" and hasattr(value, "__wrapped__")


def _contents(value: Any) -> Any:
    """What a guard compares of a captured array."""
    return (value.dtype.str, value.shape, digest(value)) if isinstance(value, np.ndarray) else None


# library objects


@functools.lru_cache(maxsize=4096)
def _dispatching(function: Any) -> Any:
    """A NumPy function that also sees traced arrays inside lists."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(holds_traced, args)) or any(map(holds_traced, kwargs.values())):
            return FUNCTIONS[function](*args, **kwargs)
        return function(*args, **kwargs)

    return call


def library_twin(value: Any) -> Any:
    """The traced twin of a library's function, or None."""
    for name in [n for n in _late if n.rpartition(".")[0] in sys.modules]:
        twin(resolve(name))(_late.pop(name))
    found = TWINS.get(id(value))
    if found is not None:
        return found[1]
    if isinstance(value, np.ufunc) or not callable(value) or isinstance(value, type):
        return None
    op = op_of(value)
    if op is not None:
        return functools.partial(call_op, op)
    try:
        known = value in FUNCTIONS
    except TypeError:
        return None
    return _dispatching(value) if known else _MATH.get(value)


def _math(name: str, ufunc: np.ufunc) -> Any:
    real = getattr(math, name)

    def call(*args: Any) -> Any:
        if not any(isinstance(a, TracedArray) for a in args):
            return real(*args)
        result = ufunc(*args)
        result.weak = "float"
        return result

    return call


_MATH = {
    getattr(math, name): _math(name, getattr(np, other))
    for name, other in (
        ("sin", "sin"), ("cos", "cos"), ("tan", "tan"), ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"),
        ("sinh", "sinh"), ("cosh", "cosh"), ("tanh", "tanh"), ("asinh", "arcsinh"), ("acosh", "arccosh"), ("atanh", "arctanh"),
        ("exp", "exp"), ("expm1", "expm1"), ("log1p", "log1p"), ("log2", "log2"), ("log10", "log10"), ("sqrt", "sqrt"),
        ("fabs", "fabs"), ("atan2", "arctan2"), ("copysign", "copysign"), ("fmod", "fmod"), ("pow", "power"), ("log", "log"),
    )
}  # fmt: skip


def _isinstance(value: Any, kinds: Any) -> bool:
    """``isinstance`` that takes a traced array for what it stands for."""
    if not isinstance(value, TracedArray) or isinstance(value, kinds):
        return isinstance(value, kinds)
    if value.weak:
        return issubclass({"bool": bool, "int": int, "float": float}[value.weak], kinds)
    return issubclass(np.ndarray, kinds) or (not value.ndim and issubclass(value.dtype.type, kinds))
