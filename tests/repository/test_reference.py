"""The reference is the docstrings of the public names: each is complete by numpydoc's validation, and its examples run."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
import warnings
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

import pullback as pb
from tests.support.paths import ROOT
from tests.support.public_names import methods_of_transformed_functions, public_names

IGNORED = {
    "GL01": "a docstring starts on the line of its quotes here",
    "GL02": "a docstring may end on the line of its last word",
    "ES01": "one sentence can say everything",
}
"""What numpydoc's validation reports and this project does not follow, each with the reason."""
CONSTRUCTED = {"custom_jvp", "custom_vjp", "ShapeDtypeStruct"}
"""The public classes that users construct: they have parameters; the others have attributes."""
RAISE_NOTHING = {
    "cache_info", "get_num_threads", "stop_gradient", "print_grad", "trim", "leaves", "adam", "rmsprop", "sgd", "key_impl",
    "custom_jvp.defjvp", "custom_jvp.defjvps", "custom_vjp.defvjp", "Jitted.cache_info",
}  # fmt: skip
"""The functions that raise no error of their own, and hence have no section of errors."""
NAMES = public_names()
DEVICE = "# needs a device"
"""Ends the lines of an example that run where there is a GPU, or its stand-in (tests/cuda_host/test_reference.py)."""


def document(name: str) -> Any:
    """Return the parsed docstring of a name."""
    return get_doc_object(NAMES[name])


def problems(name: str) -> list[str]:
    """Return what an entry of the reference lacks."""
    value, entry = NAMES[name], document(name)
    reported = validate(document(name))["errors"]
    is_constructed = not inspect.isclass(value) or value.__name__ in CONSTRUCTED
    # numpydoc takes a parameter called cls for that of a class method.
    wrong = [
        f"{code}: {words}"
        for code, words in reported
        if code not in IGNORED and (code != "PR01" or is_constructed) and words != "Unknown parameters {'cls'}"
    ]
    if not inspect.isclass(value) and not _short(name) & RAISE_NOTHING:
        wrong += [] if entry["Raises"] else ["no section Raises"]
    if inspect.isclass(value) and not is_constructed:
        missing = attributes(value) - {a.name for a in entry["Attributes"]}
        wrong += [f"attributes not documented: {sorted(missing)}"] if missing else []
    return wrong


def _short(name: str) -> set[str]:
    """Return the last part and the last two parts of a dotted name."""
    parts = name.split(".")
    return {parts[-1], ".".join(parts[-2:])}


def attributes(cls: type) -> set[str]:
    """Return the public fields and properties of a class that belong to it, not to a base outside this project."""
    own = {f.name for f in fields(cls)} if is_dataclass(cls) else set()
    bases = [c for c in cls.__mro__ if c.__module__.startswith("pullback.inspection")]
    own |= {k for c in bases for k, v in vars(c).items() if isinstance(v, property)}
    return {name for name in own if not name.startswith("_")}


def test_every_public_name_has_a_complete_entry() -> None:
    incomplete = {name: wrong for name in NAMES if (wrong := problems(name))}
    assert incomplete == {}
    complete = len(NAMES) - len(incomplete)
    modules = ("tree", "extend", "optimizers", "random", "inspection")
    exported = sum(len(getattr(pb, m).__all__) for m in modules if m != "inspection") + len(_inspection().__all__)
    names = [n for n in pb.__all__ if n != "__version__" and not inspect.ismodule(getattr(pb, n))]
    defining = 4  # defvjp, defjvp and defjvps of the two classes of rules
    assert complete == len(names) + exported + defining + len(methods_of_transformed_functions()) + len(["wrap"])


def _inspection() -> Any:
    return importlib.import_module("pullback.inspection")


def test_what_is_missing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry without a parameter, or without an example, is not complete."""

    def half(x: float, scale: float = 1.0) -> float:
        """Return half of ``x``.

        Parameters
        ----------
        x : float
            The number.
        """
        return x * scale / 2

    monkeypatch.setitem(NAMES, "pullback.half", half)
    wrong = " ".join(problems("pullback.half"))
    assert all(word in wrong for word in ("PR01", "RT01", "SA01", "EX01", "Raises"))


def test_see_also_names_what_exists() -> None:
    known = {part for name in NAMES for part in (name, name.removeprefix("pullback."), name.rpartition(".")[2])}
    wrong = []
    for name in NAMES:
        for references, _ in document(name)["See Also"]:
            for reference, _ in references:
                if reference not in known and not re.match(r"(numpy|scipy)\.", reference):
                    wrong.append(f"{name}: {reference}")
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "pullback.torch.wrap" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    text = re.sub(rf"^ *>>> [^\n]*{DEVICE}\n(?: *[^>\s][^\n]*\n)?", "", inspect.getdoc(NAMES[name]) + "\n", flags=re.MULTILINE)
    failures = run_examples(name, text)
    assert failures == ""


def run_examples(name: str, text: str) -> str:
    """Run the examples of a docstring and return what doctest reports."""
    test = doctest.DocTestParser().get_doctest(text, {"np": np, "pb": pb}, name, None, 0)
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    return "".join(said)


def test_examples_can_fail() -> None:
    assert "Expected" in run_examples("wrong", ">>> 1 + 1\n3\n")
    assert "ZeroDivisionError" in run_examples("wrong", ">>> 1 / 0\n")


def test_the_reference_lists_every_name() -> None:
    pages = [path.read_text() for path in (ROOT / "docs" / "reference").glob("*.rst")]
    listed = re.findall(r"^ {4,}([\w.]+)$|^\.\. auto\w+:: ([\w.]+)$", "\n".join(pages), re.MULTILINE)
    assert sorted(a or b for a, b in listed) == sorted(NAMES)
