"""Loops of systems that have none but Python's."""

from collections.abc import Callable
from typing import Any


def scan(stack: Callable[..., Any], step: Callable[..., Any], carry: Any, xs: Any) -> Any:
    outputs = []
    for x in xs:
        carry, output = step(carry, x)
        outputs.append(output)
    return carry, stack(outputs)


def fori_loop(lower: int, upper: int, body: Callable[..., Any], carry: Any) -> Any:
    for i in range(lower, upper):
        carry = body(i, carry)
    return carry
