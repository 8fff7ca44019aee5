"""Mistakes planted in emitted text, kind of kernel by kind: a barrier that is gone, a mask without its lanes, an index too high.

What is planted is found and named, or changes nothing for these data, as a barrier does that only a further turn of a loop
would need; nothing gives wrong numbers unnamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pullback.ir import Function
from tests import cuda_host
from tests.support.cuda.host_kernels import Host
from tests.support.cuda.host_programs import run_program, traced
from tests.support.cuda.targets import needs_host

rng = np.random.default_rng(0)


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


KINDS: dict[str, tuple[Callable[..., Any], Any]] = {
    "rows": (softmax, rng.normal(size=(70, 300)).astype(np.float32)),
    "reductions": (lambda x: (np.sum(x), np.max(x), np.argmax(x)), rng.normal(size=9000)),
    "reductions of columns": (lambda x: np.sum(x * x, axis=0), rng.normal(size=(700, 40))),
    "pairs": (lambda x: np.sum(np.exp(-((x[:, None] - x) ** 2)), axis=0), rng.normal(size=90)),
    "products": (lambda x: x @ x.T, rng.normal(size=(70, 100)).astype(np.float32)),
    "transposes": (lambda x: x.T * 2, rng.normal(size=(70, 65))),
    "scans": (np.cumsum, rng.normal(size=9000)),
    "scans of columns": (lambda x: np.cumsum(x, axis=0), rng.normal(size=(700, 40))),
    "sorts": (np.sort, rng.normal(size=3000)),
    "sorts of rows": (lambda x: np.sort(x, axis=1), rng.normal(size=(10, 100))),
    "scatters": (lambda x: np.bincount(x, minlength=40), rng.integers(0, 30, 900)),
}
FAULTS = {
    "barrier": ("", "shared memory|a race|different barriers|is reached by"),
    "mask": ("0x0000ffffu", "with mask 0000ffff"),
    "index": ("[(1LL << 40) + ", "illegal memory access"),
}
"""Of each fault what is put in the place of what it is planted at, and the words that name it."""
WITHOUT = {
    *[("barrier", kind) for kind in ("scatters", "scans of columns")],
    *[("mask", kind) for kind in ("scatters", "scans of columns", "transposes", "products", "reductions of columns", "pairs")],
}
"""Kinds of kernels that have no such place."""


def places(text: str, fault: str) -> list[tuple[int, int]]:
    """Where in a text a fault can be planted, the last places first: kernels are behind the functions that they call."""
    pointers = "|".join(dict.fromkeys(re.findall(r"\* (?:__restrict__ )?(\w+)[,);]", text)))
    what = {"barrier": r"(__syncthreads\(\);)", "mask": "(0xffffffffu)", "index": rf"(?<!\w )\b(?:{pointers})(\[)"}[fault]
    return [m.span(1) for m in re.finditer(what, text)][::-1]


def run(function: Function, values: Any, order: int, edited: Callable[[str], str]) -> Any:
    """The results of a program with its emitted text edited, or what the error says that ends it."""

    class Edited(Host):
        def edited(self, text: str) -> str:
            return edited(text)

        def load(self, kernels: Any) -> Any:
            result = super().load(kernels)
            cuda_host.order(order)
            return result

    try:
        return run_program(Edited, function, values)
    except Exception as error:
        return str(error)
    finally:
        cuda_host.forgive()


def is_named(function: Function, values: Any, text: str, fault: str, good: Any, orders: Sequence[int]) -> bool:
    """Whether a fault in a text is named in every order; one that is not changes nothing."""
    named = 0
    for order in orders:
        result = run(function, values, order, lambda emitted: text)
        if isinstance(result, str):
            assert re.search(FAULTS[fault][1], result) and re.search(r"k\d\w*, block \(", result), result
            named += 1
        else:
            for a, b in zip(result, good, strict=True):
                np.testing.assert_array_equal(a, b)
    return named == len(orders)


@needs_host
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("scope", ["one", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize(("fault", "kind"), [(f, k) for k in KINDS for f in FAULTS if (f, k) not in WITHOUT])
def test_a_planted_mistake_is_named(bench: Any, fault: str, kind: str, scope: str) -> None:
    call, x = KINDS[kind]
    function, values = traced(call, x)
    texts: list[str] = []
    good = run(function, values, 0, lambda text: texts.append(text) or text)
    assert not isinstance(good, str), good
    (text,) = texts
    named = 0
    for start, end in places(text, fault):
        changed = text[:start] + FAULTS[fault][0] + text[end:]
        named += is_named(function, values, changed, fault, good, (0, 1, 5))
        if named and scope == "one":
            break
    assert named
