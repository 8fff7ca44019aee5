"""The public names, each with its object: those of docs/stability.md, which the reference documents."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from sphinx.ext.autodoc.mock import mock

import pullback as pb
from tests.support.paths import ROOT

MODULES = ("tree", "extend", "optimizers", "random", "inspection")
"""The modules whose ``__all__`` is public. ``pullback.numpy`` has NumPy's own names, which NumPy documents."""
METHODS = {"custom_jvp": ("defjvp", "defjvps"), "custom_vjp": ("defjvp", "defvjp")}
"""The methods of public classes that users call to define something."""
TRANSFORMED = "pullback.compiled.function.Jitted"
"""The class of transformed functions; its name is not public, the methods that docs/stability.md names are."""


def public_names() -> dict[str, Any]:
    """Return the object of each public name with a docstring of its own, by the dotted name that imports it."""
    return dict(_names())


def _names() -> Iterator[tuple[str, Any]]:
    for name in pb.__all__:
        if not inspect.ismodule(value := getattr(pb, name)) and name != "__version__":
            yield f"pullback.{name}", value
    for module in MODULES:
        names = importlib.import_module(f"pullback.{module}")
        yield from ((f"pullback.{module}.{name}", getattr(names, name)) for name in names.__all__)
    for owner, methods in METHODS.items():
        yield from ((f"pullback.{owner}.{method}", getattr(getattr(pb, owner), method)) for method in methods)
    for method in methods_of_transformed_functions():
        yield f"{TRANSFORMED}.{method}", getattr(_class_of_transformed_functions(), method)
    yield "pullback.torch.wrap", _wrap()


def methods_of_transformed_functions() -> list[str]:
    """Return the names of the public methods of transformed functions, as docs/stability.md lists them."""
    text = (ROOT / "docs" / "stability.md").read_text()
    sentence = re.search(r"The methods ([^.]*?) of transformed functions", text)
    assert sentence is not None
    return [*re.findall(r"`(\w+)`", sentence[1]), "cache_info"]


def _class_of_transformed_functions() -> Any:
    module, _, name = TRANSFORMED.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _wrap() -> Any:
    """Return ``pullback.torch.wrap``. Where PyTorch is not installed, the module is imported over a mock, and forgotten."""
    if importlib.util.find_spec("torch") is not None:
        return importlib.import_module("pullback.torch").wrap
    with mock(["torch"]):
        wrap = importlib.import_module("pullback.torch").wrap
    del sys.modules["pullback.torch"]
    vars(pb).pop("torch", None)
    return wrap
