"""Resolution of outside names: the user's functions run as copies whose globals and closures resolve through the trace's
``Names``.

NumPy's and SciPy's objects are replaced by traced twins, by identity. What comes from outside is recorded: arrays and
floating-point numbers become inputs that are read at each call, every other value a guard that is checked at each call.
Library code is not followed and nothing is patched; a store to the outside is a TraceError.
"""

from __future__ import annotations

import argparse
import builtins
import datetime
import enum
import functools
import importlib.util
import os
import re
import sys
import threading
import weakref
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir import Loc, Value
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.lazy_imports import later
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.concretize import Known
from pullback.tracer.arrays.frame import Captured, Frame, Pinned
from pullback.tracer.arrays.labelled import Labelled
from pullback.tracer.arrays.literals import literal_type
from pullback.tracer.arrays.matched_classes import matched_builtins
from pullback.tracer.arrays.number_types import catches, renamed
from pullback.tracer.arrays.replacements import instance_twin, library_twin, real_function, traced_builtins
from pullback.tracer.arrays.tables import CLASSES
from pullback.tracer.arrays.traced import READONLY, Keyed, Listed, Origin, Tagged, TracedArray
from pullback.tracer.arrays.tree import EQUAL, adopted, as_array, is_array_like, leaf_key, real_class
from pullback.tracer.names.call_objects import all_of, is_of_call, object_of_call, while_alive
from pullback.tracer.names.containers import OutsideElements, container, item, mutable
from pullback.tracer.names.globals import Namespace, deleted_globals
from pullback.tracer.names.guards import (
    MAX_ITEMS,
    Guard,
    Read,
    attribute_of,
    attribute_through,
    container_key,
    contents,
    state_key,
    state_through,
    weakly,
)
from pullback.tracer.names.library_objects import library_object
from pullback.tracer.names.numpy_namespace import NumpyName
from pullback.tracer.names.places import AS_BEFORE, ATTRIBUTE, CELL, DELETED, Place, Places, VariablePlace
from pullback.tracer.names.proxies import (
    Outside,
    OutsideCallable,
    OutsideDate,
    OutsideMapping,
    OutsideObject,
    OutsideVariable,
    Refused,
    module_stand_in,
    stand_in_class,
    users_attributes,
)
from pullback.tracer.names.proxies import title as title_of
from pullback.tracer.names.refusals import (
    capturable,
    is_cached,
    no_eval,
    no_file,
    traced_getattr,
    traced_hasattr,
    traced_isinstance,
    why_refused,
)
from pullback.tracer.names.side_effects import Effects, effect, generators_in
from pullback.tracer.names.user_classes import SuperTwin, TypeTwin, build_class, has_shadow, kind_of_traced, make_shadow
from pullback.tracer.syntax.matching import tests_identity, tests_truths
from pullback.tracer.syntax.table import PREFIX, operator_called
from pullback.tracer.user_code.array_libraries import library_of
from pullback.tracer.user_code.clauses import may_suppress
from pullback.tracer.user_code.control_flow import note_statement
from pullback.tracer.user_code.errors import Restart, TraceError, user_loc
from pullback.tracer.user_code.ownership import (
    function_attributes,
    has_dict_globals,
    is_foreign,
    is_library_file,
    is_users,
    is_users_object,
    users_bases,
)

if TYPE_CHECKING:
    from pullback.tracer.syntax import matching
else:
    matching = later("pullback.tracer.syntax.matching")

# Largest captured array of ints or bools, in elements, that may be used where a static array is needed: a mask, repeat counts.
MOST_STATIC = 4096

_CONTAINERS = (list, tuple, dict, OrderedDict, deque, defaultdict, Counter)
_HOLDERS = (SimpleNamespace, argparse.Namespace, threading.local)
_MACHINERY = ("threading", "logging", "multiprocessing", "concurrent", "queue", "warnings")
_CODE = (FunctionType, MethodType, functools.partial)


class Names:
    """The outside values of one trace: their replacements, the guards, and the sources of captured inputs."""

    def __init__(
        self, root: Frame, captured: frozenset[str] = frozenset(), stored: frozenset[str] = frozenset(),
        read_whole: frozenset[str] = frozenset(), in_items: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.root = root
        self._in_items = in_items
        self.kept_inputs = captured | stored
        self.stored_inputs, self.read_whole = stored, read_whole
        self.guards: dict[Any, Guard] = {}
        self.built: set[type] = set()
        self.replaced: dict[int, Mapping[str, Any]] = {}
        self.loc: Loc | None = None
        self._kept: dict[int, tuple[Any, Any]] = {}
        self._inside: dict[int, tuple[Any, str]] = {}
        self._guarded: dict[int, Any] = {}
        self._namespaces: dict[int, Namespace] = {}
        self._cells: dict[int, tuple[CellType, CellType, Any]] = {}
        self._captured: dict[Value, tuple[Read, Any, str]] = {}
        self._arrays: list[tuple[Captured, TracedArray, Value]] = []
        self._scalars: dict[Value, tuple[int, str, Any]] = {}
        self._undecided: set[Value] = set()
        self._pinned_outside: set[Value] = set()
        self.places = Places(root, self._stored_variables)
        self._function_attributes: list[tuple[FunctionType, dict[str, Any], dict[str, Any]]] = []
        self.pinned: dict[int, Pinned] = {}
        self.effects = Effects()
        self._stand_ins: dict[type, type[OutsideObject]] = {}
        self.of_call: dict[int, int] = {}
        self._owners: dict[int, tuple[Any, Read]] = {}
        self._compiled: dict[int, tuple[Any, str]] = {}
        self.builtins = {
            **vars(builtins), **traced_builtins(), **matched_builtins(), "isinstance": traced_isinstance,
            "hasattr": traced_hasattr, "getattr": traced_getattr, "type": TypeTwin(self), "super": SuperTwin(self),
            "__import__": self._import, "__build_class__": build_class, "eval": no_eval, "exec": no_eval, "open": no_file,
            "input": no_file,
        }  # fmt: skip
        self.builtins |= {k: self.follow(v) for k, v in vars(builtins).items() if _BUILTINS.get(k) is not v}

    def follow(self, function: Any) -> Any:
        """Return a copy of a user's function, method, partial or callable object that resolves its names here."""
        match function:
            case FunctionType():
                if isinstance(function.__globals__, Namespace) and function.__globals__.names is self:
                    return function
                if is_users(function.__code__) and has_dict_globals():
                    return self._keep(function, self._copy)
                return library_twin(function) or self._keep(function, self._copy_of_library)
            case MethodType():
                owner = function.__self__
                if isinstance(owner, type):
                    owner = self.shadow(owner)
                elif self._is_outside(owner):
                    owner = self.instance(owner)
                return function if owner is function.__self__ else MethodType(self.follow(function.__func__), owner)
            case functools.partial():
                return self._partial(function)
            case type():
                return self.shadow(function)
        twin = library_twin(function)
        if twin is not None:
            return twin
        if is_cached(function) and isinstance(function.__wrapped__, FunctionType):
            return self._keep(function, self._without_cache)
        return self.instance(function) if self._is_outside(function) else function

    def follow_library(self, function: FunctionType) -> FunctionType:
        """Return a copy of a library's function that resolves its names here, like a user's."""
        copy: FunctionType = self._keep(function, self._copy)
        return copy

    def resolve(self, value: Any, read: Read, describe: str, guard: bool = True) -> Any:
        """Return the replacement of an outside value in the trace; record its guard or input."""
        kind = type(value)
        if issubclass(kind, TracedArray | Outside | Refused) or real_class(kind) is not kind:
            return value
        if kind is float or isinstance(value, np.generic | np.ndarray | Remote):
            if capturable(value):
                if kind is not float or value not in _REWRITTEN or self.is_input(describe) or is_of_call(read):
                    return self._capture(value, read, describe)
            elif isinstance(value, np.ndarray):
                return self._by_contents(value, read, describe)
        if is_array_like(kind):
            if library_of(kind) is not None and adopted(value) is None:
                return library_object(self, value, read, describe)
            replaced = as_array(value)
            if capturable(replaced):
                return self._capture(replaced, lambda: as_array(read()), describe)
        is_input = describe in self.stored_inputs or (kind in _INPUTS and is_of_call(read))
        if kind in _INPUTS and is_input and (kind is not int or -(2**63) <= value < 2**63):
            return self._capture(value, read, describe)
        if kind is int and -(2**63) <= value < 2**63 and self.is_input(describe):
            return self._capture(value, read, describe)
        if kind in _CONTAINERS or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return container(self, value, read, describe)
        if kind in (set, bytearray, array):
            return mutable(self, value, read, describe)
        if kind in EQUAL:
            self._compiled[id(value)] = value, describe
            if describe in self.stored_inputs or users_attributes(value):
                self.guard(Guard(read=read, expected=value, how="identity", describe=describe))
                return self._keep(value, lambda v: OutsideCallable(v, self))
        is_object = (is_of_call(read) or id(value) in self._owners) and self._is_outside(value)
        if is_object:
            self._own(value, read, describe)
        elif guard:
            is_value = kind in EQUAL or isinstance(value, int | float | complex | str | bytes | None)
            how = "value" if is_value else "identity"
            self.guard(Guard(read=read, expected=value, how=how, describe=describe))
        replaced = self.replacement(value, describe)
        if is_object and not issubclass(type(replaced), OutsideObject):
            self.guard(Guard(read=read, expected=value, how="identity", describe=describe))
        if isinstance(value, enum.Enum):
            self.shadow(kind)
        elif replaced is value:
            self._state(value, describe)
        return replaced

    def replacement(self, value: Any, describe: str) -> Any:
        """Return the replacement of a library's object, a function, a class, a module or an object."""
        if type(value) is NumpyName:
            return self.replacement(value.__wrapped__, describe)
        if isinstance(value, ModuleType):
            return self._keep(value, lambda m: module_stand_in(m, self, is_library_file(getattr(m, "__file__", None))))
        if is_foreign(value):
            self.effects.watch_global_generators()
        name = value.__name__ if isinstance(value, BuiltinFunctionType) else ""
        if name and _BUILTINS.get(name) is value:
            return self.builtins[name]
        if refused := why_refused(value, describe):
            return Refused(refused)
        if value is np.ndarray:
            return self._array_class
        twin = instance_twin(value, self)
        if twin is None:
            twin = library_twin(value)
        if twin is not None:
            return twin
        if value is os.getenv:
            return OutsideMapping(os.environ, self).get
        if value is importlib.import_module:
            return self._import_module
        if value is datetime.datetime or value is datetime.date:
            return OutsideDate(value, self)
        if isinstance(value, (*_CODE, type)) or self._is_outside(value) or is_cached(value):
            return self.follow(value)
        if isinstance(value, Mapping):
            return self._keep(value, lambda v: OutsideMapping(v, self))
        if isinstance(value, ContextVar):
            return OutsideVariable(value, self)
        if isinstance(value, weakref.ref):
            return lambda: self.resolve(value(), value, describe)
        return value

    def instance(self, value: Any) -> Any:
        """Return a stand-in for an object of a user's class."""
        kind = type(value)
        if kind not in self._stand_ins:
            self._stand_ins[kind] = stand_in_class(kind)
        return self._keep(value, lambda v: self._stand_ins[kind](v, self))

    @property
    def _array_class(self) -> type:
        """The replacement of np.ndarray."""
        self.root.has_static_arrays |= not self.root.traces_made
        array_class: type = CLASSES[np.ndarray] if self.root.traces_made else np.ndarray
        return array_class

    def shadow(self, kind: type) -> Any:
        """Return the replacement of a class: a shadow, if the user wrote it outside."""
        if real_class(kind) is not kind or kind in self.built or not users_bases(kind):
            return kind
        if not has_shadow(kind):
            self._once(kind, self._guard_class)
            return kind
        return self._keep(kind, lambda k: make_shadow(k, self))

    def take(self, objects: Sequence[Any]) -> None:
        """Note the objects of the call, and guard which of them are one."""
        for k, value in enumerate(objects):
            first = self.of_call.setdefault(id(value), k)
            if first != k:
                reads = [functools.partial(object_of_call, index, while_alive(value)) for index in (k, first)]
                self.guard(Guard(read=reads[0], expected=reads[1], how="same", describe=f"argument {title_of(value)}"))

    def _own(self, value: Any, read: Read, describe: str) -> None:
        """Guard that a read through an object of the call returns an object of the same class, and, of an object met before, that
        one."""
        if id(value) in self._owners:
            known = self._owners[id(value)][1]
        elif id(value) in self._kept:
            known = weakly(value)
        else:
            self._owners[id(value)] = (value, read)
            self.guard(Guard(read=read, expected=type(value), how="class", describe=describe))
            return
        self.guard(Guard(read=read, expected=known, how="same", describe=describe))

    def owner(self, real: Any) -> Read:
        """Return a function that returns an outside object: in a call with another object in its place, that one."""
        return self._owners[id(real)][1] if id(real) in self._owners else weakly(real)

    def fixed(self, real: Any) -> Any:
        """Return an outside object, guarded to be this one if it is reached through an object of the call."""
        if id(real) in self._owners:
            self.check(self._owners[id(real)][1], weakly(real), title_of(real), "same")
        return real

    def distinct(self) -> list[Guard]:
        """Return the guards that different objects stay different, where one is reached through an object of the call. Objects of
        different classes are."""
        classes: dict[type, list[Any]] = {}
        for real, stand_in in self._kept.values():
            if issubclass(type(stand_in), OutsideObject):
                classes.setdefault(type(real), []).append(real)
        guards = []
        for kind, reals in classes.items():
            if len(reals) > 1 and any(id(real) in self._owners for real in reals):
                read = functools.partial(all_of, tuple(map(self.owner, reals)))
                guards.append(Guard(read=read, expected=None, how="distinct", describe=f"the objects of class {kind.__name__}"))
        reads = [source.read for source, _, _ in self._arrays]
        if len(reads) > 1 and any(map(is_of_call, reads)) and self.written():
            read = functools.partial(all_of, tuple(reads))
            guards.append(Guard(read=read, expected=None, how="distinct", describe="the arrays from outside"))
        return guards

    def objects_of_call(self) -> list[tuple[Read, Any, Any, str]]:
        """Return the objects that are reached through objects of the call: how each is read, the object, its stand-in, and its
        description."""
        pairs = ((*self._owners[key], self._kept.get(key)) for key in self._owners)
        return [(read, real, kept[1], title_of(real)) for real, read, kept in pairs if kept is not None]

    def _guard_class(self, kind: type) -> None:
        """Guard a class that is used unchanged: its attributes, and the globals that its methods read."""
        for base in users_bases(kind):
            self.check(functools.partial(vars, base), dict(vars(base)), base.__name__, "state")
            for value in vars(base).values():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(function, FunctionType):
                    self._once(function.__code__, functools.partial(self._guard_globals, function.__globals__))

    def _guard_globals(self, globals: dict[str, Any], code: CodeType) -> None:
        """Guard the globals read by code that is not followed, and by functions among these globals."""
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._guard_globals(globals, constant)
        for name in code.co_names:
            value = globals.get(name)
            if value is None or isinstance(value, ModuleType):
                continue
            self.check(functools.partial(globals.get, name), value, name, "value" if _is_plain(value) else "identity")
            if isinstance(value, FunctionType) and is_users(value.__code__):
                self._once(value.__code__, functools.partial(self._guard_globals, value.__globals__))

    def type_of(self, value: Any) -> type:
        """Return the type of the value for which a value of the trace stands."""
        if isinstance(value, Tagged):
            return self.type_of(value.proved())
        kind = type(value)
        if kind is TracedArray:
            kind = kind_of_traced(value)
            return self._array_class if kind is np.ndarray else kind
        if is_size(value) or kind is Labelled:
            return value.__class__
        if real_class(kind) is kind and getattr(kind, "stands_for", None) is np.ndarray:
            return self._array_class
        if issubclass(kind, Listed):
            return list
        if issubclass(kind, Keyed):
            return value.stands_for
        if library_of(kind) is not None:
            return real_class(kind)
        result: type = self.shadow(self.class_of(object.__getattribute__(value, "_real")) if issubclass(kind, Outside) else kind)
        return result

    def class_of(self, real: Any) -> type:
        """Return the class of an outside value, guarded, as ``__class__`` can be assigned."""
        if id(real) not in self._owners:
            self.same(functools.partial(attribute_through, weakly(real), "__class__"), f"the class of a {type(real).__name__}")
        return type(real)

    def original(self, value: Any) -> Any:
        """Return the outside value behind a class, function, module or container of the trace."""
        return next((real for real, copy in self._kept.values() if copy is value), real_function(value))

    def outer_cell(self, cell: CellType) -> CellType | None:
        """Return the outside cell for which a cell of the trace stands; None for a cell of a function that the trace created."""
        return next((real for real, new, _ in self._cells.values() if new is cell), None)

    def argument(self, value: Any) -> Any:
        """Return the replacement of a static argument: functions are followed, the user's objects read through a stand-in."""
        if value is None or isinstance(value, str | bytes | int | float | complex | tuple | np.generic):
            return value
        index = self.of_call.get(id(value))
        if index is not None:
            read = functools.partial(object_of_call, index, while_alive(value))
            return self.resolve(value, read, f"argument {title_of(value)}")
        return self.resolve(value, lambda: value, type(value).__name__, guard=False)

    def scalar(self, parameter: Value, index: int, describe: str, value: Any, is_undecided: bool) -> Known:
        """Return the known value of an int or bool that is leaf ``index`` of the call. ``is_undecided``: it decides no branches,
        bounds and exponents, unless it is static anyway."""
        self._scalars[parameter] = (index, describe, value)
        if is_undecided:
            self._undecided.add(parameter)
        return value, frozenset({parameter})

    def decides(self, known: Known | None) -> bool:
        """Return whether a value, if it is known, decides branches, bounds and exponents."""
        if known is None:
            return False
        return not any(s in self._undecided and not self._is_pinned(s) for s in known[1])

    def _is_pinned(self, source: Value) -> bool:
        return source in self._pinned_outside or (source in self._scalars and self._scalars[source][0] in self.pinned)

    def pin(self, source: Value) -> None:
        """Make an int or bool that was used as a static value static: an argument, or a captured scalar or mask, which is
        guarded."""
        if source in self._scalars:
            index, describe, value = self._scalars[source]
            if index not in self.pinned:
                self.pinned[index] = Pinned(index=index, describe=describe, value=value, loc=user_loc())
            return
        read, value, describe = self._captured[source]
        self._pinned_outside.add(source)
        if isinstance(value, np.ndarray):
            self.check(lambda: contents(read()), contents(value), describe)
        else:
            self.check(read, value, describe)

    def check(self, read: Read, expected: Any, describe: str, how: str = "value") -> None:
        """Record a guard."""
        self.guard(Guard(read=read, expected=expected, how=how, describe=describe))

    def same(self, read: Read, describe: str, is_library: bool = False) -> None:
        """Record the guard that ``read()`` returns the same object as now."""
        self.guard(Guard(read=read, expected=read(), how="identity", describe=describe, is_library=is_library))

    def finish(self, loc: Loc | None = None) -> None:
        """Raise TraceError, at ``loc`` or at the function, if the function changed something outside."""
        loc = loc or self.loc
        for describe, may_be_added in self.root.stores.changed_outside():
            self.change_again(describe, may_be_added)
        for describe in self.effects.wanted():
            self.change_again(describe, False)
        self.effects.refuse(loc)

    def change_again(self, describe: str, may_be_added: bool = True) -> None:
        """Trace the function once more, as one that changes a container. ``may_be_added``: it may only add to it."""
        if describe not in self.stored_inputs:
            if not may_be_added:
                self.root.wanted_whole.add(describe)
            self.root.wanted_inputs.add(describe)
            raise Restart(f"{describe} changes")

    def attributes_change(self, function: Any) -> None:
        """Trace the function once more, as one that stores to attributes of a compiled function. Raises TraceError for one with
        no known name."""
        if id(function) in self._compiled:
            self.change_again(self._compiled[id(function)][1])
        raise TraceError(f"the traced function writes an attribute of the compiled {function.__name__}; return the value instead")

    def is_stored(self, describe: str) -> bool:
        """Return whether an earlier trace showed that the function changes a container or stores to a place."""
        return describe in self.stored_inputs or any(describe.startswith(f"{name}[") for name in self.stored_inputs)

    def container(self, value: Any, read: Read, describe: str) -> Any:
        """Return the trace's copy of a container that was met before, or to which the function only adds; else None."""
        if type(value) is tuple or hasattr(type(value), "_fields"):
            return None
        if id(value) in self._inside:
            self.change_again(self._inside[id(value)][1], may_be_added=False)
        is_added = describe in self.stored_inputs and describe not in self.read_whole
        elements = functools.partial(OutsideElements, self, value, read, describe)
        copy = self.root.stores.known(value, read, describe, is_added, elements)
        if copy is None:
            return None
        self.check(lambda: type(read()), type(value), describe, "identity")
        if is_added:
            self.root.only_added.add(describe)
        return self.copied(value, copy)

    def is_copied(self, value: Any) -> bool:
        """Return whether a container has a copy whose changes reach it."""
        return self.root.stores.has_copy(value)

    def copied_inside(self, value: Any, describe: str) -> None:
        """Record that a container is copied as a part of another one."""
        self._inside[id(value)] = value, describe

    def add_container(self, value: Any, stand_in: Any, read: Read, describe: str) -> Any:
        """Make a copy one whose changes reach the container outside, and return it."""
        return self.root.stores.outside(value, stand_in, read, describe, self.is_stored(describe))

    def _stored_variables(self) -> Iterator[tuple[Any, Callable[[], Place]]]:
        """Yield the globals, the variables of outer functions and the attributes of functions that the function stored."""
        for namespace in [*self._namespaces.values()]:
            yield from namespace.places()
        for cell, new, content in [*self._cells.values()]:
            if (new.cell_contents if is_filled(new) else _EMPTY) is not content:
                yield (id(cell), ""), functools.partial(self._cell_place, cell, new, content)
        for function, now, before in [*self._function_attributes]:
            for key in {**before, **now}:
                if now.get(key, DELETED) is not before.get(key, DELETED):
                    yield (id(function), key), functools.partial(self._attribute_place, function, key, now, before)

    def _attribute_place(self, function: FunctionType, key: str, now: dict[str, Any], before: dict[str, Any]) -> Place:
        name = function.__name__

        def put(value: Any) -> None:
            value = before.get(key, DELETED) if value is AS_BEFORE else value
            if value is DELETED:
                now.pop(key, None)
            else:
                now[key] = value

        def get() -> Any:
            stored = now.get(key, DELETED)
            return AS_BEFORE if stored is before.get(key, DELETED) else stored

        self.read_again(before.get(key), name)
        read = functools.partial(before.__getitem__, key)
        return VariablePlace(ATTRIBUTE, weakref.ref(function), key, f"{name}.{key}", read, get, put)

    def _cell_place(self, cell: CellType, new: CellType, content: Any) -> Place:
        name = self._name_of_cell(cell)

        def put(value: Any) -> None:
            value = content if value is AS_BEFORE else value
            if value is not DELETED and value is not _EMPTY:
                new.cell_contents = value
            elif is_filled(new):
                del new.cell_contents

        def get() -> Any:
            stored = new.cell_contents if is_filled(new) else _EMPTY
            return AS_BEFORE if stored is content else DELETED if stored is _EMPTY else stored

        def before() -> Any:
            if content is _EMPTY:
                raise ValueError
            return content

        self.read_again(content, name)
        return VariablePlace(CELL, lambda: cell, "", name, before, get, put, new)

    def read_again(self, value: Any, describe: str) -> None:
        """Trace the function once more, with the content of a place, to which it stores, as an input if ``value`` is a number."""
        if type(value) in _INPUTS and describe not in self.stored_inputs:
            self.root.wanted_inputs.add(describe)
            raise Restart(f"{describe} is an input")

    def _name_of_cell(self, cell: CellType) -> str:
        functions = [real for real, _ in self._kept.values() if isinstance(real, FunctionType)]
        pairs = [pair for f in functions for pair in zip(f.__closure__ or (), f.__code__.co_freevars)]
        return next((name for candidate, name in pairs if candidate is cell), "of an outer function")

    def close(self) -> None:
        """Drop references to the traced values.

        Objects that outlive the trace refer to it in cycles, and objects in a cycle, such as the user's arrays, are freed only
        by the garbage collector.
        """
        for namespace in self._namespaces.values():
            namespace.resolved.clear()
        self._arrays.clear()
        self.places.clear()
        self._function_attributes.clear()
        for kept in (self._kept, self._inside, self._namespaces, self._cells, self._captured, self._stand_ins, self._owners):
            kept.clear()
        self.of_call.clear()
        self._compiled.clear()
        self.effects.clear()
        self.builtins, self.guards = {}, {}
        self.root.inputs.clear()
        self.root = Frame()

    def copied(self, value: Any, stand_in: Any) -> Any:
        """Record ``stand_in`` as the copy of a container, from which ``original`` returns the container."""
        self._kept[id(stand_in)] = (value, stand_in)
        return stand_in

    def guard(self, guard: Guard) -> None:
        self.guards.setdefault((guard.how, guard.describe, id(guard.expected), _read_key(guard.read)), guard)

    def _keep(self, value: Any, make: Callable[[Any], Any]) -> Any:
        kept = self._kept.get(id(value))
        if kept is None:
            kept = self._kept[id(value)] = (value, make(value))
        return kept[1]

    def _once(self, value: Any, guard: Callable[[Any], None]) -> None:
        """Call a function on an object, the first time that it is met."""
        if id(value) not in self._guarded:
            self._guarded[id(value)] = value
            guard(value)

    def _is_outside(self, value: Any) -> bool:
        """Return whether a value is an object that is read through a stand-in, and was not created in the trace."""
        kind = type(value)
        if isinstance(value, _HOLDERS):
            return True
        if not is_users_object(value) or real_class(kind) is not kind or issubclass(kind, Outside):
            return False
        return not any(map(self.is_made, kind.__mro__))

    def is_made(self, kind: type) -> bool:
        """Return whether the traced function created a class."""
        return kind in self.built or any(isinstance(getattr(v, "__globals__", None), Namespace) for v in vars(kind).values())

    # functions

    def namespace(self, real: dict[str, Any]) -> Namespace:
        """Return what the functions with some globals have in their place in the trace."""
        if id(real) not in self._namespaces:
            self._namespaces[id(real)] = Namespace(real, self)
        return self._namespaces[id(real)]

    def _copy(self, function: FunctionType) -> FunctionType:
        real = function.__globals__.real if isinstance(function.__globals__, Namespace) else function.__globals__
        namespace = self.namespace(real)
        code = function.__code__
        if not self.root.ends_act and may_suppress(code):
            self.root.wants_ends = True
            raise Restart(f"{function.__name__} may suppress exceptions")
        if self.root.follows_syntax:
            rewritten = matching.rewritten(code)
            if rewritten is None:
                start = Loc(code.co_filename, code.co_firstlineno)
                how = "its source is not at hand: its branches run in Python, and its loops roll where they are one body"
                note_statement(self.root.statements, "function", how, start)
            code = rewritten or code
            self.root.is_rewritten |= code is not function.__code__
            if tests_identity(code):
                if self.root.has_choices:
                    raise TraceError(f"{function.__name__}, whose source is not followed, may test what is None on one path")
                self.root.unwritten = function.__name__
        elif tests_truths(code):
            code = matching.with_truths(code)
        if code is function.__code__ and not self.root.settles_truths and tests_truths(code):
            self.root.needs_truths = True
            raise TraceError(f"{function.__name__}, whose source is not at hand, tests whether a value is True or False")
        closure = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        cells = [self._cell(closure[n], n) for n in code.co_freevars]
        self.loc = self.loc or Loc(code.co_filename, code.co_firstlineno)
        if catches(code) or (self.root.ends_act and code.co_exceptiontable):
            self.root.has_handlers = True
            if self.root.sizes is not None:
                self.root.sizes.is_caught = True
        for deleted in deleted_globals(code):
            namespace.store_directly(deleted)
        copy = FunctionType(renamed(code, real).replace(), namespace, function.__name__, None, tuple(new for new, _ in cells))
        self._kept[id(function)] = (function, copy)
        for _, fill in cells:
            fill()
        name = function.__name__
        own = weakref.ref(function)
        self.same(functools.partial(attribute_of, own, "__code__", function.__code__), name)
        copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
        self._defaults(function, copy, own)
        if _WRAPPED in function.__dict__:
            copy.__dict__[_WRAPPED] = function.__dict__[_WRAPPED]
        read = functools.partial(_attributes_of, own, _own_attributes(function))
        copy.__dict__.update(container(self, read(), read, name, is_fixed=True) if read() else {})
        self._function_attributes.append((function, copy.__dict__, copy.__dict__.copy()))
        return copy

    def _defaults(self, function: FunctionType, copy: FunctionType, own: weakref.ref[Any]) -> None:
        name = function.__name__
        if function.__defaults__ is not None:
            read = functools.partial(attribute_of, own, "__defaults__", function.__defaults__)
            self.same(read, f"{name}.__defaults__")
            copy.__defaults__ = tuple(self._default(d, item(read, i), name) for i, d in enumerate(function.__defaults__))
        if function.__kwdefaults__ is not None:
            read = functools.partial(attribute_of, own, "__kwdefaults__", function.__kwdefaults__)
            self.guard(Guard(read=read, expected=container_key(read()), how="container", describe=f"{name}.__kwdefaults__"))
            copy.__kwdefaults__ = {}
            for key, value in function.__kwdefaults__.items():
                if _is_plain(value):
                    self.check(item(read, key), value, f"{name}.__kwdefaults__")
                copy.__kwdefaults__[key] = self._default(value, item(read, key), name)

    def _default(self, value: Any, read: Read, name: str) -> Any:
        return value if _is_plain(value) else self.resolve(value, read, f"a default of {name}", guard=False)

    def _without_cache(self, function: Any) -> Callable[..., Any]:
        """Return a followed function whose results Python keeps, so that it runs once and stores nothing in a later call."""
        followed = self.follow(function.__wrapped__)

        @functools.wraps(function.__wrapped__, assigned=("__name__", "__qualname__"), updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            before, contents = self.places.contents(), self.root.stores.contents_outside()
            result = followed(*args, **kwargs)
            places = [target.describe for target in self.places.changed_since(before)]
            changed = next(iter([*places, *self.root.stores.changed_since(contents)]), None)
            if changed is not None:
                what = f"{function.__name__}, whose results Python keeps, stores to {changed}"
                raise effect(f"{what}; leave out functools.lru_cache", user_loc())
            return result

        return call

    def _copy_of_library(self, function: FunctionType) -> Any:
        """Return a library's function unchanged, or, if it wraps a user's function, a copy that wraps its replacement."""
        if function.__module__ is None or function.__module__.partition(".")[0] == "pullback" or not function.__closure__:
            return function
        if hasattr(function, "registry") and hasattr(function, "dispatch"):
            return self._dispatching(function)
        self._kept[id(function)] = (function, function)
        filled = [c.cell_contents if is_filled(c) else _EMPTY for c in function.__closure__]
        followed = [self.follow(v) if isinstance(v, (*_CODE, type)) or self._is_outside(v) else v for v in filled]
        if all(a is b for a, b in zip(filled, followed)):
            return function
        cells = tuple(c if v is _EMPTY else CellType(v) for c, v in zip(function.__closure__, followed))
        copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__dict__.update(function.__dict__)
        return copy

    def _dispatching(self, function: Any) -> Any:
        """Return the replacement of a function of functools.singledispatch."""

        def call(*args: Any, **kwargs: Any) -> Any:
            read = functools.partial(function.dispatch, real_class(self.type_of(args[0])))
            self.same(read, function.__name__)
            return self.follow(read())(*args, **kwargs)

        return call

    def _partial(self, function: functools.partial[Any]) -> Any:
        own = weakref.ref(function)
        read = functools.partial(attribute_of, own, "args", function.args)
        args = [self.resolve(a, item(read, i), f"args[{i}]", guard=False) for i, a in enumerate(function.args)]
        keywords = dict(function.keywords)
        if keywords:
            read = functools.partial(attribute_of, own, "keywords", function.keywords)
            keywords = container(self, keywords, read, "keywords", is_fixed=True)
        return functools.partial(self.follow(function.func), *args, **keywords)

    def _cell(self, cell: CellType, name: str) -> tuple[CellType, Callable[[], None]]:
        """Return the copy of a cell, and a function that fills it."""
        known = self._cells.get(id(cell))
        if known is not None:
            return known[1], lambda: None
        new = CellType()
        self._cells[id(cell)] = (cell, new, _EMPTY)

        def fill() -> None:
            if not is_filled(cell):
                return
            content = self.resolve(cell.cell_contents, functools.partial(getattr, cell, "cell_contents"), name)
            new.cell_contents = content
            self._cells[id(cell)] = (cell, new, content)

        return new, fill

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        real = globals.real if isinstance(globals, Namespace) else globals
        module = builtins.__import__(name, real, locals, fromlist, level)
        parts = (importlib.util.resolve_name("." * level + name, real["__package__"]) if level else name).split(".")
        return self.imported(module, [".".join(parts[: k + 1]) for k in range(len(parts))])

    def _import_module(self, name: str, package: str | None = None) -> Any:
        module = importlib.import_module(name, package)
        return self.imported(module, [importlib.util.resolve_name(name, package)])

    def imported(self, module: ModuleType, names: Sequence[str]) -> Any:
        """Return the replacement of an imported module. ``names``: the module and its parents, whose entries in sys.modules
        are guarded."""
        for name in names:
            if not is_library_file(getattr(sys.modules.get(name), "__file__", None)) and name not in sys.stdlib_module_names:
                self.same(functools.partial(sys.modules.__getitem__, name), f"sys.modules[{name!r}]")
        return self.replacement(module, module.__name__)

    # values

    def _capture(self, value: Any, read: Read, describe: str) -> TracedArray:
        earlier = self._captured_before(value, read, describe)
        if earlier is not None:
            return earlier
        source, traced, parameter = self._parameter(value, read, describe)
        if isinstance(value, Remote):
            traced.readonly = f"{describe} is an array on a device, which does not change; return the new array instead"
            traced.is_dense = value.layout != "strided"
        elif not isinstance(value, np.ndarray) or (value.dtype.kind in "biu" and value.size <= MOST_STATIC):
            self._captured[parameter] = (read, value, describe)
            if describe in self.stored_inputs or (is_of_call(read) and self._is_varying(value, describe)):
                self._undecided.add(parameter)
            traced.known = (value, frozenset({parameter}))
        if isinstance(value, np.ndarray):
            traced.readonly = "" if value.flags.writeable else READONLY
            traced.created, traced.is_dense = True, value.flags.c_contiguous and value.flags.aligned
            self._arrays.append((source, traced, parameter))
            self._kept[id(value)] = (value, traced)
        return traced

    def _parameter(self, value: Any, read: Read, describe: str) -> tuple[Captured, TracedArray, Value]:
        """Return a new input, what is traced for it, and its parameter."""
        array_type, weak = literal_type(value)
        name = re.sub(r"\W+", "_", describe).strip("_")
        parameter = self.root.parameter(array_type, name)
        source = Captured(read=read, describe=describe, key=leaf_key(value))
        self.root.inputs.append(source)
        traced = TracedArray(array_type, self.root, parameter, weak=weak, loc=user_loc())
        traced.origin = Origin("outside", describe)
        return source, traced, parameter

    def takes_columns(self, describe: str) -> bool:
        """Return whether a list may have its elements in arrays in this trace. Raises TraceError if it may in a later one."""
        if describe in self._in_items or not self.root.rolls:
            return False
        self.root.has_lists = True
        self.root.in_columns.add(describe)
        if self.root.grows is None:
            error = TraceError(f"{describe} is a list whose length, or contents, change from call to call")
            error.wants_lists = True
            raise error
        return self.root.grows

    def column(self, value: Any, read: Read, describe: str) -> TracedArray:
        """Return the input for an array of the elements of a list, which ``read`` makes at each call."""
        _, traced, _ = self._parameter(value, read, describe)
        traced.created = traced.is_dense = True
        return traced

    def list_of_columns(self, kind: type, element: Any, columns: Sequence[Any], length: Any, capacity: int) -> Any:
        """Return a list of the trace, a deque if that is its ``kind``, whose elements, like ``element``, are rows of inputs."""
        with self.root.active():
            return operator_called(PREFIX + "of columns")(kind, element, columns, length, capacity)

    def _is_varying(self, value: Any, describe: str) -> bool:
        """Return whether a number of an object is a float that had other values in other calls in which it decided."""
        return isinstance(value, float | np.inexact) and describe in self.kept_inputs

    def input(self, value: Any, read: Read, describe: str) -> TracedArray:
        """Return the input for a number or an array that is read at each call; a number decides no branches."""
        traced = self._capture(value, read, describe)
        if traced.known is not None and not isinstance(value, np.ndarray):
            self._undecided |= traced.known[1]
        return traced

    def _captured_before(self, value: Any, read: Read, describe: str) -> TracedArray | None:
        """Return the existing input for an array captured under another name, guarded by both names being the same array; else
        None."""
        if not isinstance(value, np.ndarray) or id(value) not in self._kept:
            return None
        earlier: TracedArray = self._kept[id(value)][1]
        original = next((source for source, traced, _ in self._arrays if traced is earlier), None)
        if original is None:
            return None
        if is_of_call(read) or is_of_call(original.read):
            self.guard(Guard(read=read, expected=original.read, how="same", describe=describe))
            return earlier
        self.guard(Guard(read=read, expected=value, how="identity", describe=describe))
        self.guard(Guard(read=original.read, expected=value, how="identity", describe=original.describe))
        return earlier

    def _by_contents(self, value: Any, read: Read, describe: str) -> Any:
        """Return a read-only copy of an array that cannot be an input, guarded by its contents."""
        self.check(lambda: contents(read()), contents(value), describe)
        if type(value) is not np.ndarray:
            return value
        copy = value.copy()
        copy.flags.writeable = False
        return copy

    def written(self) -> list[tuple[Captured, TracedArray]]:
        """Return the outside arrays that the function wrote."""
        return [(source, traced) for source, traced, parameter in self._arrays if traced.value is not parameter]

    def outside_arrays(self) -> list[tuple[Read, Any, TracedArray, str]]:
        """Return the outside arrays that were met: how each is read, the array, what is traced for it, and its description."""
        return [(source.read, source.read(), traced, source.describe) for source, traced, _ in self._arrays]

    def is_input(self, describe: str) -> bool:
        """Return whether a number is an input although rewrites look for its value: it, or its container, has changed before."""
        return describe in self.kept_inputs or any(describe.startswith(f"{name}[") for name in self.kept_inputs)

    def _state(self, value: Any, describe: str) -> None:
        """Guard the attributes of an object that is used unchanged."""
        if isinstance(value, (np.ufunc, BuiltinFunctionType, type, ModuleType, *_CODE)) or not hasattr(value, "__dict__"):
            return
        if type(value).__module__.partition(".")[0] in _MACHINERY:
            return
        if len(vars(value)) <= MAX_ITEMS:
            self.check(functools.partial(state_through, weakly(value)), state_key(value), describe, "state")
        for name, state in generators_in(value):
            self.effects.watch_random(f"{describe}.{name}", state)


_EMPTY = object()
_INPUTS = (bool, int, float, complex)
_WRAPPED = "__wrapped__"
"""The attribute by which functools.wraps refers to the wrapped function."""
_BUILTINS = dict(vars(builtins))

# Numbers that enable rewrites (x ** 2, 0.5 * x): constants with a guard rather than inputs.
_REWRITTEN = frozenset({0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -0.5, -1.0, -2.0})


def _attributes_of(owner: weakref.ref[Any], last: dict[str, Any]) -> dict[str, Any]:
    function = owner()
    return last if function is None else _own_attributes(function)


def _own_attributes(function: FunctionType) -> dict[str, Any]:
    """Return the attributes that the user set on a function, but for the function that it wraps."""
    return {name: value for name, value in function_attributes(function).items() if name != _WRAPPED}


def _read_key(read: Any) -> Any:
    """Return a key that is equal for reads of the same thing."""
    if isinstance(read, str | int):
        return read
    if not isinstance(read, functools.partial):
        return id(read)
    owner = getattr(read.func, "__self__", None)
    return id(owner), getattr(read.func, "__name__", ""), *map(_read_key, read.args)


def is_filled(cell: CellType) -> bool:
    """Return whether a cell holds a value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float | complex | str | bytes)
