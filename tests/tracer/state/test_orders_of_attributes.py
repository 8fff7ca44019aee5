"""Objects from outside get their new attributes in the order in which the path of a call stores them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import pullback as pb


class Settings:
    """A class whose attributes functions store."""


state = SimpleNamespace()
PATHS = (1.0, -1.0, 2.5, 0.0, 2.5, -1.0, 0.5)


def stored_before(p: float) -> None:
    if p > 0:
        state.last = p
    state.new = p
    state.last = p


def stored_on_one_path(p: float) -> None:
    if p > 0:
        state.last = p
    else:
        state.new = p
    state.new = 1.0
    state.last = 2.0


def stored_in_two_orders(p: float) -> None:
    if p > 0:
        state.last, state.new = p, 1.0
    else:
        state.new, state.last = p, 2.0


def in_branches_of_branches(p: float) -> None:
    if state.n % 2:
        state.last = 1
        if p > 1:
            state.new = p
        if p < 2:
            state.third = p
        state.last = 2
    state.third = 2
    state.new = p


def in_iterations(p: float) -> None:
    for k in range(1000):
        if k * p > 500:
            state.last = p
        if k * p < -200:
            state.new = p
    state.last, state.new = 1.0, 2.0


def in_a_loop_without_a_bound(p: float) -> None:
    k = 0
    while k < p:
        if k == 1:
            state.last = p
        else:
            state.new = p
        k += 1
    state.last, state.new = 1.0, 2.0


def deleted_before(p: float) -> None:
    if p > 0:
        del state.x
        state.x = p
    state.n = p


def deleted_on_all_paths(p: float) -> None:
    if p > 0:
        state.last = p
    del state.x
    state.x = 1.0
    if p > 1:
        state.new = 1
    state.last = 3.0


def of_a_class(p: float) -> None:
    if p > 0:
        Settings.last = p  # type: ignore[attr-defined]
    Settings.new = p  # type: ignore[attr-defined]
    Settings.last = p  # type: ignore[attr-defined]


def in_a_statement_that_handles_errors(p: float) -> None:
    try:
        state.new = 1.0 / (p - 1.0)
    except ZeroDivisionError:
        state.last = 1.0
    state.last = state.new = 2.0


FUNCTIONS = [
    stored_before, stored_on_one_path, stored_in_two_orders, in_branches_of_branches, in_iterations, in_a_loop_without_a_bound,
    deleted_before, deleted_on_all_paths, of_a_class, in_a_statement_that_handles_errors,
]  # fmt: skip


def shown(function: Callable[..., Any], p: float, first: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the attributes after a call, in their order."""
    for name in [name for name in vars(Settings) if not name.startswith("_")]:
        delattr(Settings, name)
    own = SimpleNamespace(**first)
    monkeypatch.setitem(globals(), "state", own)
    function(p)
    return repr([*vars(own).items(), *(item for item in vars(Settings).items() if not item[0].startswith("_"))])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_new_attributes(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(function)
    for p in PATHS:
        first = {"x": 0.5, "n": 1}
        assert shown(compiled, p, first, monkeypatch) == shown(function, p, first, monkeypatch)


@pytest.mark.parametrize("function", [stored_before, stored_on_one_path, stored_in_two_orders])
def test_attributes_of_which_some_are_there(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(function)
    for p in PATHS:
        for first in ({"new": 1}, {"last": 1, "new": 2}, {}, {"new": 2, "last": 1}, {"last": 2}):
            assert shown(compiled, p, first, monkeypatch) == shown(function, p, first, monkeypatch)
