"""Nothing outside is frozen: each kind of outside state, changed in each way, under each transform, gives the new answer.

The kinds are in tests/staleness: each starts at a line ``=== name``; then come a module's source (MODEL stands for the classes
below), behind ``---`` the expression that reads the state, and behind each ``-->`` (continued behind ``...``) a statement that
changes it. The function is ``sum(sin(x) * expression)``, compared with plain NumPy; those of refused.txt raise a TraceError, at
every call.
"""

import builtins
import math
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.paths import TESTS

X = np.array([0.5, 1.5, 2.5])

OTHER = """
import numpy as np
RATE = 0.3
COUNT = 3
def helper():
    return RATE * 2
class Config:
    rate = 0.3
    def scaled(self):
        return self.rate * RATE
DEEP = Config()
"""


@dataclass(frozen=True)
class Kind:
    """``setup`` makes the state, ``read`` is the expression, ``changes`` the ways of change."""

    name: str
    setup: str
    read: str
    changes: tuple[str, ...]


MODEL = """
class Part:
    def __init__(self):
        self.rate = 0.3
        self.items = [0.5, 1.5]
        self.table = {"a": 0.25, "n": 2}
        self.weights = np.array([1.0, 2.0, 3.0])
class Model:
    shared = 0.7
    count = 3
    def __init__(self):
        self.rate = 0.3
        self.steps = 2
        self.flag = True
        self.part = Part()
        self.parts = [Part(), Part()]
    @property
    def doubled(self):
        return self.rate * 2
    @staticmethod
    def fixed():
        return 0.4
    @classmethod
    def of_class(cls):
        return cls.shared * cls.count
    def method(self, k=1.5):
        return self.rate * k + self.part.rate
    def __call__(self):
        return self.method() * self.shared
    def __getitem__(self, key):
        return self.rate * key
    def __len__(self):
        return self.steps
m = Model()
"""

LIBRARY = """
import random
import numpy as np
def noise():
    return np.random.standard_normal()
def pick():
    return random.random()
"""


def kinds(file: str) -> Any:
    """The kinds of a file."""
    for text in re.split(r"^=== ", (TESTS / "staleness" / file).read_text(), flags=re.MULTILINE)[1:]:
        name, rest = text.split("\n", 1)
        setup, rest = re.split(r"^--- ", rest, flags=re.MULTILINE)
        read, *changes = re.split(r"^--> ", rest, flags=re.MULTILINE)
        statements = tuple(c.strip().replace("\n... ", "\n") for c in changes)
        built = Kind(name, setup.replace("MODEL\n", MODEL), read.strip(), statements)
        yield pytest.param(built, built, id=name.replace(" ", "-"))


def module(name: str, file: Path, text: str) -> Any:
    built: Any = types.ModuleType(name)
    file.parent.mkdir(exist_ok=True)
    built.__file__ = str(file)
    built.__dict__.update(np=np, pb=pb, PATH=str(file.parent / "data.txt"))
    file.write_text(text)
    sys.modules[name] = built
    exec(compile(text, built.__file__, "exec"), built.__dict__)
    return built


@pytest.fixture
def user(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of a kind."""
    monkeypatch.setenv("STALE", "0.25")
    monkeypatch.setattr(sys, "argv", ["program"])
    for owner, name in ((np, "pi"), (np, "rad2deg"), (math, "pi"), (builtins, "divmod")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    (tmp_path / "data.txt").write_text("0.25")
    module("stale_other", tmp_path / "stale_other.py", OTHER)
    module("stale_library", tmp_path / "site-packages" / "stale_library.py", LIBRARY)
    state = request.param
    body = f"def value(x):\n    return {state.read}\ndef f(x):\n    return np.sum(np.sin(x) * ({state.read}))\n"
    built = module("stale_user", tmp_path / "stale_user.py", f"{state.setup}\n{body}")
    built.stale_other = sys.modules["stale_other"]
    with warnings.catch_warnings(action="ignore"):
        yield built
    for name in ("stale_user", "stale_other", "stale_library"):
        sys.modules.pop(name, None)


def change(user: Any, statement: str) -> None:
    if statement == "RELOAD":
        other = sys.modules["stale_other"]
        exec(compile(OTHER.replace("0.3", "0.8"), other.__file__, "exec"), other.__dict__)
    elif statement == "WRITE":
        Path(user.PATH).write_text("0.75")
    else:
        exec(statement, user.__dict__)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jit": pb.jit,
    "value_and_grad": pb.value_and_grad,
    "jit of grad": lambda f: pb.jit(lambda x: pb.grad(f)(x)),
}


def expected(transform: str, user: Any) -> Any:
    """The value and the gradient, by plain NumPy; of ``x[...]`` in the expression, by differences."""
    value = user.f(X)
    if transform == "jit":
        return (value,)
    steps = 1e-6 * np.eye(3)
    slope = np.array([(user.f(X + s) - user.f(X - s)) / 2e-6 for s in steps])
    return (value, slope) if transform == "value_and_grad" else (slope,)


def check(compiled: Any, transform: str, user: Any) -> None:
    """Two calls agree with plain NumPy."""
    for _ in range(2):
        result = compiled(X)
        for a, b in zip(result if isinstance(result, tuple) else (result,), expected(transform, user), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("user, state", list(kinds("seen.txt")), indirect=["user"])
def test_changes_are_seen(user: Any, state: Kind, transform: str) -> None:
    compiled = TRANSFORMS[transform](user.f)
    check(compiled, transform, user)
    for statement in state.changes:
        change(user, statement)
        check(compiled, transform, user)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("user, state", list(kinds("refused.txt")), indirect=["user"])
def test_what_would_be_frozen_is_refused(user: Any, state: Kind, transform: str) -> None:
    compiled = TRANSFORMS[transform](user.f)
    for statement in ("", *state.changes):
        change(user, statement)
        for _ in range(2):
            with pytest.raises(pb.TraceError) as caught:
                compiled(X)
            assert caught.value.file in (user.__file__, __file__)
