"""Random functions with Python's own control flow: `pb.jit(loops="roll")` against plain Python, bit for bit."""

import numpy as np
import pytest

import pullback as pb
from tests.fuzz.python_control import arguments_of, function_of, is_equal

DEFAULT, LONG = 60, 3000
"""Numbers of programs in the default run and behind the long mark."""


def copies(arguments: tuple[object, ...]) -> list[object]:
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def check(seeds: range) -> None:
    refused = 0
    for seed in seeds:
        function, text = function_of(seed)
        compiled = pb.jit(function, guards=False)
        for call in range(3):
            arguments = arguments_of(1000 * seed + call)
            expected_arguments, actual_arguments = copies(arguments), copies(arguments)
            try:
                expected = function(*expected_arguments)
            except Exception as error:
                expected = error
            try:
                actual = compiled(*actual_arguments)
            except pb.TraceError:
                refused += 1
                break
            except Exception as error:
                assert type(error) is type(expected), f"{seed}: {arguments}\n{text}"
                continue
            assert is_equal(expected, actual), f"{seed}: {arguments}\n{text}"
            assert is_equal(expected_arguments, actual_arguments), f"{seed}: {arguments}\n{text}"
    assert refused < 0.5 * len(seeds)


def test_programs_are_plain_pythons_to_the_bit() -> None:
    check(range(DEFAULT))


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_many_programs_are_plain_pythons_to_the_bit(part: int) -> None:
    count = LONG // 10
    check(range(10_000 + part * count, 10_000 + (part + 1) * count))
