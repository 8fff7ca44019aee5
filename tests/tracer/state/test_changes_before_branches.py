"""Stores to containers from outside in statements that are traced several times: each change is made once, as Python makes it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Program = tuple[Callable[..., Any], Any]


def appended_where_read() -> Program:
    values = [0.5, 1.5]

    def f(p: Any) -> Any:
        last = 0.0
        if p > 0.0:
            last = values[-1]
        else:
            values.append(p)
        return last

    return f, values


def reversed_after_a_return() -> Program:
    values = [0.5, 1.5, 2.5]

    def f(p: Any) -> Any:
        if p > 0.0:
            return values[-1]
        values.reverse()
        return 0.0

    return f, values


def assigned_before_a_check() -> Program:
    table = {0: 0.5}

    def f(p: Any) -> Any:
        try:
            table[0] = table[0] + 0.25
            try:
                if p > 5.0:
                    raise ArithmeticError
            except IndexError:
                table[0] = -1.0
        finally:
            table[1] = p
        return table[0]

    return f, table


def counted_before_a_check() -> Program:
    table, box = {0: 0.5}, [0]

    def counted() -> int:
        box[0] += 1
        return box[0]

    def f(p: Any) -> Any:
        m = 1
        try:
            if m in table:
                pass
            else:
                try:
                    m = counted()
                except IndexError:
                    m = 0
                try:
                    if box[0] > 5:
                        raise ArithmeticError
                except IndexError:
                    m = 0
        finally:
            if m in table:
                m = counted()
        return table.get(m, 0.25) if p < 1.25 else 0.0

    return f, box


def assigned_before_a_return() -> Program:
    table = {"x": 0.5, "n": 0}

    def f(p: Any) -> Any:
        if p > 0.0:
            table["z"] = p
            return table["n"]
        return table["x"]

    return f, table


PROGRAMS = [
    appended_where_read, reversed_after_a_return, assigned_before_a_check, counted_before_a_check, assigned_before_a_return,
]  # fmt: skip


@pytest.mark.parametrize("make", PROGRAMS)
def test_changes_are_made_once(make: Callable[[], Program]) -> None:
    (plain, expected), (function, contents) = make(), make()
    compiled = pb.jit(function)
    for p in (-1.0, 2.0, -0.5, 1.0):
        assert compiled(p) == plain(p)
        assert contents == expected


def texts_as_keys(p: Any) -> Any:
    table = {"x": 0.5, "n": 0}
    if p > 0.0:
        table["z"] = p
    return table["n"], table.get("q", 7.0), table.get("z", -1.0), "x" in table, "z" in table, 3 in table


def texts_in_sets(p: Any) -> Any:
    names: set[Any] = {"u"}
    if p > 0.0:
        names.add("v")
    if p > 1.0:
        names.add(3)
    return "u" in names, "v" in names, 3 in names, "w" in names, len(names)


@pytest.mark.parametrize("program", [texts_as_keys, texts_in_sets])
def test_texts_are_keys_of_entries_that_values_decide(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program)
    for p in (0.5, 2.5, -1.0, np.float64(4.0)):
        assert compiled(p) == program(p)


SHARED = [0.5, 1.0]
TREE: dict[str, Any] = {"shared": SHARED, "own": [0.25]}
TABLE: dict[str, Any] = {}


def changed_before_a_tree_is_met(q: Any) -> Any:
    SHARED[-1] = q
    if q <= 0.0:
        TABLE["x"] = SHARED[0]
        TREE["own"][0] = q
    return SHARED[-1]


def test_a_block_that_meets_a_container_keeps_what_was_changed_before() -> None:
    compiled = pb.jit(changed_before_a_tree_is_met)
    assert [compiled(0.25), compiled(-0.5)] == [0.25, -0.5]
    assert (SHARED, TREE, TABLE) == ([0.5, -0.5], {"shared": SHARED, "own": [-0.5]}, {"x": 0.5})


LAST: Any = 0.5


def stored_at_the_end(p: Any) -> Any:
    global LAST
    total = 0.0
    if p > 0.0:
        try:
            total = 2.0 * p
        finally:
            LAST = p
    return total


def stored_by_with(p: Any) -> Any:
    global LAST
    if p > 0.0:
        with contextlib.nullcontext(p) as LAST:
            p = p + 1.0
    return p


@pytest.mark.parametrize("program", [stored_at_the_end, stored_by_with])
def test_globals_that_clauses_bind_are_stored(program: Callable[..., Any]) -> None:
    global LAST
    compiled = pb.jit(program)
    for p in (2.0, -1.0, 3.0):
        LAST = 0.5
        results = compiled(p), LAST
        LAST = 0.5
        assert results == (program(p), LAST)


class Counted:
    hits: Any = 0


COUNTED = Counted()


def in_a_loop_after_the_class(x: float) -> Any:
    Counted.hits += 1
    w = 0
    while w < x:
        w += 1
        COUNTED.hits += 1
    return COUNTED.hits


def in_a_loop_before_the_class(x: float) -> Any:
    w = 0
    while w < x:
        w += 1
        COUNTED.hits += 1
        Counted.hits += 1
    return COUNTED.hits


def in_a_branch_before_the_class(x: float) -> Any:
    if x > 2:
        COUNTED.hits += 10
    Counted.hits += 1
    return COUNTED.hits


def in_a_branch_after_the_class(x: float) -> Any:
    Counted.hits += 3
    if x > 2:
        COUNTED.hits += 10
    return COUNTED.hits + Counted.hits


def in_either_in_each_iteration(x: float) -> Any:
    Counted.hits += 3
    for i in range(3):
        if x > i:
            COUNTED.hits += 10
        else:
            Counted.hits += 1
    return COUNTED.hits + Counted.hits


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize(
    "function",
    [
        in_a_loop_after_the_class, in_a_loop_before_the_class, in_a_branch_before_the_class, in_a_branch_after_the_class,
        in_either_in_each_iteration,
    ],
)  # fmt: skip
def test_an_attribute_that_is_the_classs_until_it_is_the_objects(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function)
    for xs in ((3.0, 0.0, 5.0), (0.0, 0.0, 4.0), (1.0, 4.0, 2.0)):
        outcomes = []
        for called in (function, compiled):
            vars(COUNTED).clear()
            Counted.hits = 0
            outcomes.append([(called(x), dict(vars(COUNTED)), Counted.hits) for x in xs])
        assert outcomes[0] == outcomes[1]


def counted_test(limit: float) -> bool:
    global LAST
    LAST += 1
    return limit > LAST


def left_by_break(p: Any) -> Any:
    w = 0
    while counted_test(100.0) and w < 5:
        w += 1
        if p > 2.5:
            break
    return w


def left_by_return(p: Any) -> Any:
    w, values = 0, []
    while not (2.0 * p > 50.0) and counted_test(100.0 * p) and w < 4:
        w += 1
        values.append(p * w)
        if p * w > 2.5:
            return values
    return w


@pytest.mark.parametrize("program", [left_by_break, left_by_return])
def test_a_condition_that_stores_is_evaluated_as_often_as_in_python(program: Callable[..., Any]) -> None:
    global LAST
    compiled = pb.jit(program)
    for p in (2.0, -1.0, 3.0, 0.25, 30.0):
        LAST = 0
        results = compiled(p), LAST
        LAST = 0
        assert results == (program(p), LAST)


def test_a_key_of_a_counter_that_is_not_there_is_deleted() -> None:
    def f(p: float) -> int:
        counts = Counter(a=1)
        if p > 0:
            counts["b"] += 1
        else:
            del counts["b"], counts["a"]
        return len(counts)

    compiled = pb.jit(f)
    assert [compiled(p) for p in (1.0, -1.0, 2.0)] == [2, 0, 2]


def test_what_an_iteration_may_store_is_not_stored_on_another_path() -> None:
    def f(state: Any, p: float, k: Any) -> Any:
        m = 1
        if k == 2:
            if p > 1:
                return m, state.count
            for i in reversed(range(k)):
                m = (m + i) % 7
                state.kept = state.last
        if m % 2:
            raise ValueError("odd")
        return None

    class State:
        pass

    own = State()
    compiled = pb.jit(lambda p, k: f(own, p, k))
    for p in (1.0, 2.5, -1.0, 2.5):
        for k in (np.int64(2), np.int64(0)):
            outcomes = []
            for call in (compiled, lambda p, k: f(own, p, k)):
                own.__dict__.clear()
                own.last, own.count = None, 1  # type: ignore[attr-defined]
                try:
                    result = call(p, k)
                except ValueError as error:
                    result = repr(error)
                outcomes.append(repr((result, vars(own))))
            assert outcomes[0] == outcomes[1]


def test_lists_that_a_path_makes_longer_before_it_raises_have_room() -> None:
    history: list[float] = []

    def f(p: float, k: Any) -> None:
        if p != 1.0:
            w = 0
            while True:
                w += 1
                if w > k % 5 or p > 5.0:
                    break
                history.append(abs(p))
            raise ValueError(f"after {w}")

    compiled = pb.jit(f)
    for p, k in ((-2.0, np.int64(3)), (1.0, np.int64(3)), (2.0, np.int64(4)), (7.0, np.int64(2)), (0.5, 3)):
        if p == 1.0:
            compiled(p, k)
        else:
            with pytest.raises(ValueError) as raised:
                compiled(p, k)
            with pytest.raises(ValueError) as expected:
                f(p, k)
            assert str(raised.value) == str(expected.value)


ELEMENTS: set[Any] = set()


def added_by_a_loop(v: Any) -> Any:
    global ELEMENTS
    ELEMENTS.clear()
    for _ in range(v[0]):
        ELEMENTS |= {7}
    return len(ELEMENTS)


def added_by_a_branch(v: Any) -> Any:
    global ELEMENTS
    ELEMENTS.discard(9)
    if v[0] > 0:
        ELEMENTS |= {7, 9}
    return 9 in ELEMENTS


@pytest.mark.parametrize("program", [added_by_a_loop, added_by_a_branch])
def test_a_set_that_a_block_rebinds_and_changes(program: Callable[..., Any]) -> None:
    global ELEMENTS
    own = ELEMENTS
    compiled = pb.jit(program, guards=False)
    states: list[list[Any]] = []
    for called in (compiled, program):
        own.clear()
        own |= {1, 9}
        states.append([])
        for v in ([2, 1], [0, 1], [-1, 4], [3, 3]):
            states[-1].append((called(np.array(v)), ELEMENTS is own, set(own)))
    assert states[0] == states[1]
