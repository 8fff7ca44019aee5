"""What the command line works on: functions in Python files, arguments written as text, random arrays.

A random array depends on its name, its type and the seed alone, so that a dump and a later run of its files agree.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pullback.ir.extents import value_of
from pullback.ir.passes.grad import GradientError
from pullback.ir.types import DTYPES, ArrayType, Type
from pullback.tracer import TraceError, parameters_of
from pullback.tracer.errors import error_loc

_ARRAY = re.compile(r"(\w+)\[([\d,\s]*)\]")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)


class UsageError(Exception):
    """A command that cannot be understood."""


class UserError(Exception):
    """Something of the user's that failed: a file, a function, an array."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A callable in a Python file."""

    module: ModuleType
    name: str
    function: Callable[..., Any]


@contextmanager
def users_errors(doing: str) -> Iterator[None]:
    """Turns what the user's code raises into a UserError that names the place; TraceErrors pass."""
    try:
        yield
    except (TraceError, UsageError, UserError, GradientError):
        raise
    except Exception as error:
        loc = error_loc(error)
        place = f"{loc.file}:{loc.line}: " if loc else ""
        raise UserError(f"{doing}: {place}{type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise UserError(f"{doing}: it called exit ({error.code})") from error


def load(text: str) -> Target:
    """The callable that FILE.py:NAME says. Raises UsageError, and UserError where the file cannot be run."""
    file, colon, name = text.rpartition(":")
    if not colon or not name or not file.endswith(".py"):
        raise UsageError(f"{text!r}: FILE.py:NAME was expected")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.absolute().parent))
    with users_errors(f"importing {file}"):
        spec.loader.exec_module(module)
    return Target(module=module, name=name, function=_member(module, name))


def _member(module: ModuleType, name: str) -> Callable[..., Any]:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [k for k, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__]
            raise UsageError(f"{module.__file__} has no {name}; it has {', '.join(known) or 'no functions'}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{name} is a {type(found).__name__}, not a function")
    return found


def example(target: Target, name: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that a callable of the target's file returns: one value, a tuple, or (args, kwargs)."""
    make = _member(target.module, name)
    with users_errors(f"calling {name}"):
        found = make()
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple) and isinstance(found[1], dict):
        return list(found[0]), found[1]
    return (list(found) if type(found) is tuple else [found]), {}


def parsed(function: Callable[..., Any], words: Sequence[str], seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Arguments from their texts. Raises UsageError."""
    parameters = parameters_of(function)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        keyword = _KEYWORD.fullmatch(word)
        if keyword is not None:
            kwargs[keyword[1]] = argument(keyword[2], keyword[1], seed)
        elif kwargs:
            raise UsageError(f"{word}: positions come before keywords")
        else:
            args.append(argument(word, parameters.name(len(args)), seed))
    return args, kwargs


def argument(text: str, name: str, seed: int) -> Any:
    """One argument from its text: an array type, or a Python literal. Raises UsageError."""
    array = _ARRAY.fullmatch(text.strip())
    if array is not None:
        if array[1] not in DTYPES:
            raise UsageError(f"{text}: there is no dtype {array[1]}; there are {', '.join(DTYPES)}")
        try:
            shape = tuple(int(n) for n in array[2].split(",") if n.strip())
        except ValueError:
            raise UsageError(f"{text}: extents are numbers") from None
        return random_array(ArrayType(DTYPES[array[1]], shape), name, seed)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UsageError(f"{text}: an array such as f64[64,32] or a Python value was expected") from None


def random_array(t: Type, name: str, seed: int, sizes: Mapping[str, int] | None = None) -> Any:
    """An array, or a NumPy scalar, of a type: floats from 0.1 to 0.9, integers 0 and 1, bools."""
    shape = tuple(value_of(e, sizes or {}) for e in t.shape)
    rng = np.random.default_rng([seed, zlib.crc32(f"{name}:{t.dtype}".encode())])
    made: Any
    match t.dtype.kind:
        case "b" | "i" | "u":
            made = rng.integers(0, 2, shape)
        case "c":
            made = rng.uniform(0.1, 0.9, shape) + 1j * rng.uniform(0.1, 0.9, shape)
        case _:
            made = rng.uniform(0.1, 0.9, shape)
    found = np.asarray(made).astype(t.dtype.numpy)
    return found if shape else found[()]


def read_inputs(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file. Raises UserError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a file of arrays (.npz): {error}") from None
