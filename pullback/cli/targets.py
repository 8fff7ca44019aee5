"""Load the targets of the command line: functions in Python files and modules, and files of arrays."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from pullback.compiled.function import Jitted
from pullback.exporting.argument_specs import UsageError
from pullback.ir.core.records import dataclass
from pullback.ir.passes.transforms.expand import GradientError
from pullback.tracer import TraceError
from pullback.tracer.user_code.errors import error_loc

FORMS = "FILE.py:NAME or MODULE:NAME was expected, as model.py:loss or package.module:Class.method"
"""The accepted forms of a target, for errors."""


class UserError(Exception):
    """A failure of something that the user supplied: a file, a function, an array."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A callable in a Python file or module."""

    module: ModuleType
    name: str
    function: Callable[..., Any]


@contextmanager
def users_errors(doing: str) -> Iterator[None]:
    """Turn exceptions of the user's code into a UserError that names the source location; TraceErrors pass unchanged."""
    try:
        yield
    except (TraceError, UsageError, UserError, GradientError):
        raise
    except Exception as error:
        loc = error_loc(error)
        location = f"{loc.file}:{loc.line}: " if loc else ""
        raise UserError(f"{doing}: {location}{type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise UserError(f"{doing}: it called exit ({error.code})") from error


def load(text: str) -> Target:
    """Return the callable that FILE.py:NAME or MODULE:NAME refers to. Raises UsageError, and UserError if the file cannot be
    run."""
    source, colon, name = text.rpartition(":")
    if not colon or not name or not source:
        raise UsageError(f"{text!r}: {FORMS}")
    if source.endswith(".py"):
        module = _file(source)
    elif re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", source):
        module = _module(source)
    else:
        raise UsageError(f"{text!r}: {FORMS}")
    return Target(module=module, name=name, function=_member(module, name))


def _file(name: str) -> ModuleType:
    path = Path(name)
    if not path.is_file():
        others = [str(p) for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise UsageError(f"there is no file {name}{_suggestion(name, others)}")
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.absolute().parent))
    with users_errors(f"importing {name}"):
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            if "relative import" not in str(error):
                raise
            raise UserError(f"importing {name}: it is a file of a package; name it as package.{path.stem}:NAME") from error
    return module


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        known = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        known = False
    if not known:
        raise UsageError(f"there is no module {name} here or among the installed ones")
    with users_errors(f"importing {name}"):
        return importlib.import_module(name)


def _suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return a suggestion of the candidate closest to a name; empty if none is close."""
    matches = difflib.get_close_matches(name, list(candidates), 1)
    return f"; did you mean {matches[0]}?" if matches else ""


def _member(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return the callable of that name; a method is bound to an instance, which its class must create without arguments."""
    member: Any = module
    for part in name.split("."):
        if not hasattr(member, part):
            raise UsageError(_unknown(module, member, name, part))
        owner, member = member, getattr(member, part)
        if isinstance(owner, type) and _takes_self(inspect.getattr_static(owner, part)):
            member = getattr(_instance(owner, name), part)
    if not callable(member):
        raise UsageError(f"{name} is a {type(member).__name__}, not a function")
    return member


def _unknown(module: ModuleType, owner: Any, name: str, part: str) -> str:
    """Return the error text for a name that does not exist, with a suggestion."""
    if owner is module:
        where, kind = f"{module.__file__} has no {name}", "functions"
        candidates = [k for k, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__]
    else:
        where, kind = f"{getattr(owner, '__name__', name)} has no {part}", "methods"
        candidates = [k for k in dir(owner) if not k.startswith("_") and callable(getattr(owner, k, None))]
    return where + (_suggestion(part, candidates) or f"; it has {', '.join(candidates) or f'no {kind}'}")


def _takes_self(raw: Any) -> bool:
    """Return whether a member of a class is a method of its instances."""
    function = raw
    while isinstance(function, Jitted):
        function = function.__wrapped__
    if not isinstance(function, FunctionType):
        return False
    return next(iter(inspect.signature(function).parameters), "") == "self"


def _instance(kind: type, name: str) -> Any:
    """Create an instance without arguments. Raises UsageError if the class needs arguments."""
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise UsageError(
            f"{name}: an instance of {kind.__name__} needs arguments ({error}); make one in the file, as "
            f"model = {kind.__name__}(...), and name its method: model.{name.rpartition('.')[2]}"
        ) from None
    except ValueError:
        pass
    with users_errors(f"making {kind.__name__}()"):
        return kind()


def example(target: Target, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that a callable of the target's file returns: one value, a tuple, or (args, kwargs)."""
    make = _member(target.module, name)
    with users_errors(f"calling {name}"):
        value = make()
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple) and isinstance(value[1], dict):
        return list(value[0]), value[1]
    return (list(value) if type(value) is tuple else [value]), {}


def read_inputs(path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz file. Raises UserError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a file of arrays (.npz): {error}") from None
