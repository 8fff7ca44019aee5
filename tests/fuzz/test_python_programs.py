"""Random programs of several classes, as scientists write them, against plain Python: results, arguments afterwards, errors."""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.fuzz.python_programs import ARGUMENTS, NAMES, STYLES, arguments_of, text_of
from tests.fuzz.store_checks import interpreted

DEFAULT, LONG, PARTS = 20, 500, 5
"""Numbers of programs of a class in the default run and behind the long mark, and the parts of the latter."""
FOLLOWED = 5
"""One program in ``FOLLOWED`` is compiled with guards, too, where values decide what has no common type."""
MOST_REFUSED = 0.4
"""Greatest share of the programs of a class that may be refused without guards."""
ZERO = re.compile(r"-0\.0?(?!\d)")
"""The sign of zeros, which may differ."""


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Return what a call returns and its arguments afterwards, or the class of its exception and the arguments."""
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        try:
            result = repr(function(*arguments))
        except pb.TraceError:
            return "refused"
        except Exception as error:
            result = type(error).__name__
    return ZERO.sub(lambda match: match[0][1:], f"{result}; arguments afterwards: {arguments[3:]}")


def function_of(text: str, file: str) -> Callable[..., Any]:
    """Return the function of a text, whose source is at hand."""
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names = dict(NAMES)
    exec(compile(text, file, "exec", dont_inherit=True), names)
    function: Callable[..., Any] = names["f"]
    return function


def check(style: str, seeds: range) -> None:
    """Check programs of a class. At most a share of them may be refused."""
    refused = 0
    for seed in seeds:
        text = text_of(style, seed)
        function = function_of(text, f"<{style} {seed}>")
        ways = [pb.jit(function, guards=False), *([pb.jit(function)] if seed % FOLLOWED == 0 else [])]
        for way, compiled in enumerate(ways):
            for call in range(len(ARGUMENTS)):
                with interpreted():
                    result = outcome(compiled, arguments_of(call))
                if result == "refused":
                    refused += way == 0
                    break
                assert result == outcome(function, arguments_of(call)), f"{seed}, call {call}\n{text}"
    assert refused <= MOST_REFUSED * len(seeds)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("style", STYLES)
def test_programs_are_plain_pythons(style: str) -> None:
    check(style, range(DEFAULT))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("style", STYLES)
def test_many_programs_are_plain_pythons(style: str, part: int) -> None:
    count = LONG // PARTS
    check(style, range(10_000 + part * count, 10_000 + (part + 1) * count))
