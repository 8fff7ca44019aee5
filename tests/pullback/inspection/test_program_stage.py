"""The stage program: golden texts, and that what they say of buffers and steps is so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.text import parse_module, print_module
from pullback.ir.verify import verify_module
from tests.support.paths import GOLDEN

FOLDER = GOLDEN / "shown"
A, B = np.ones((64, 64)), np.ones((64, 64))
V = np.ones(8)


def beside(a: Any, b: Any) -> Any:
    return np.sort(a @ b, axis=0), np.sort(b @ a, axis=1)


def room(a: Any, b: Any) -> Any:
    return np.sort((a @ b) @ (b @ a), axis=0) @ a


def momentum(p: Any, m: Any, g: Any) -> Any:
    m = 0.9 * m + g
    return np.sum(p * p), p - 0.1 * m, m


def recurrence(w: Any, h: Any, xs: Any) -> Any:
    h, ys = pb.scan(lambda h, x: (np.tanh(w @ h + x),) * 2, h, xs)
    return h, np.sort(ys, axis=0)


def checked(x: Any, i: Any) -> Any:
    pb.print("{}", x[0])
    return np.sort(x)[i]


def looked_up(p: Any, i: Any) -> Any:
    return p * 2, np.sort(p)[i]


SHOWN: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "beside": (pb.jit(beside), (A, B)),
    "room": (pb.jit(room), (A, B)),
    "momentum": (pb.jit(momentum, donate=(0, 1)), (V, V, V)),
    "recurrence": (pb.jit(recurrence), (np.ones((8, 8)), V, np.ones((20, 8)))),
    "checked": (pb.jit(checked), (V, np.array([1]))),
    "looked_up": (pb.jit(looked_up, donate=0), (V, np.array([1]))),
}


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name: str, bless: bool) -> None:
    function, args = SHOWN[name]
    text = function.stages(*args)["program"]  # type: ignore[attr-defined]
    module = verify_module(parse_module(text))
    assert print_module(module) == re.sub(r"(?m)^ *#.*\n", "", text)
    shown = re.sub(r'[^\s"]*test_program_stage\.py:[\d, -]+', "LINES", text.partition("\n\nkernel ")[0]) + "\n"
    path = FOLDER / f"{name}.txt"
    if bless:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    assert path.read_text() == shown


def test_lines_are_the_users() -> None:
    function, args = SHOWN["momentum"]
    first = momentum.__code__.co_firstlineno
    text = function.stages(*args)["program"]  # type: ignore[attr-defined]
    assert f"test_program_stage.py:{first + 1}-{first + 2}" in text


def test_of_nothing() -> None:
    stages = pb.jit(lambda x: x).stages(V)
    assert stages["program"] == stages["lower"]
