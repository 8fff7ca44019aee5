"""Errors in ``try`` statements whose ``except`` clauses handle them, and statements that leave ``try`` or ``with`` statements."""

from __future__ import annotations

import contextlib
import copy
import dis
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.user_code.clauses import _statements
from tests.support.api import Array

pytestmark = pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
ERRORS = (ValueError, OverflowError)


def quotient(x: Array) -> Any:
    try:
        return 1.0 / float(x[0] - x[1])
    except ZeroDivisionError:
        return 0.0


def with_jitter(a: Array) -> Any:
    for k in range(6):
        try:
            return np.linalg.cholesky(a + 1e-8 * 10.0**k * np.eye(len(a))), k
        except np.linalg.LinAlgError:
            pass
    return None


def inverse(a: Array) -> Any:
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(a)


def bounded_exp(v: float) -> Any:
    try:
        return math.exp(v)
    except ERRORS:
        return math.inf


def element(x: Array, k: int) -> Any:
    try:
        return x[k]
    except (KeyError, IndexError):
        return -1.0


def counted(x: Array) -> Any:
    total, n = 0.0, 0
    for v in x:
        try:
            total += 1.0 / float(v)
        except ArithmeticError:
            n += 1
    return total, n


def of_helper(x: Array) -> Any:
    def divided(a: Any, b: Any) -> Any:
        return a / b

    try:
        result = divided(2.0, float(x[0]))
    except Exception:
        result = -1.0
    else:
        result += 1.0
    finally:
        x[0] = 5.0
    return result


def bare(x: Array) -> Any:
    try:
        return x[0], float(x[1]) // float(x[0])
    except:  # noqa: E722
        return 0.0


def raised_again(x: Array) -> Any:
    try:
        return 1.0 / float(x[0])
    except ZeroDivisionError as error:
        raise ValueError("the first number is 0") from error


def of_another_kind(x: Array) -> Any:
    try:
        return 1.0 / float(x[0])
    except KeyError:
        return 0.0


def at_the_end(x: Array) -> Any:
    y = 0.0
    try:
        y = 1.0 / float(x[0])
    finally:
        y = y + 1.0
    return y


ZERO, ONES = np.array([0.0, 2.0]), np.array([4.0, 2.0])
INDEFINITE = np.array([[1.0, 2.0], [2.0, 4.0]]) - 1e-5 * np.eye(2)
CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (quotient, [(np.ones(2),), (ONES,)]),
    (with_jitter, [(np.eye(2),), (INDEFINITE,), (-np.eye(2),)]),
    (inverse, [(np.zeros((2, 2)),), (2 * np.eye(2),)]),
    (bounded_exp, [(0.0,), (1e4,)]),
    (element, [(ONES, 1), (ONES, 2), (ONES, -3)]),
    (counted, [(np.array([1.0, 0.0, 2.0, 0.0]),), (np.ones(4),)]),
    (of_helper, [(ZERO,), (ONES,)]),
    (bare, [(ZERO,), (ONES,)]),
    (raised_again, [(ZERO,), (ONES,)]),
    (of_another_kind, [(ZERO,), (ONES,)]),
    (at_the_end, [(ZERO,), (ONES,)]),
]


def outcome(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return what a function returns or raises, and its arguments afterwards."""
    own = copy.deepcopy(arguments)
    try:
        return function(*own), own
    except Exception as error:
        return (type(error), str(error)), own


def bare_text(value: Any) -> str:
    """Return the text of a value, with scalars of NumPy as those of Python."""
    return re.sub(r"np\.\w+\(([^()]*)\)", r"\1", repr(value))


@pytest.mark.parametrize("function, calls", CASES, ids=[c[0].__name__ for c in CASES])
def test_each_call_takes_its_path(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    compiled = pb.jit(function)
    for arguments in (*calls, *calls[::-1]):
        actual, expected = outcome(compiled, arguments), outcome(function, arguments)
        assert bare_text(actual) == bare_text(expected)


def test_gradients_are_of_the_path() -> None:
    slope = pb.grad(lambda a: np.sum(inverse(a) ** 2))
    a = np.array([[2.0, 0.3], [0.1, 1.0]])
    inverted = np.linalg.inv(a)
    np.testing.assert_allclose(slope(a), -2 * inverted.T @ inverted @ inverted.T, rtol=1e-12)
    np.testing.assert_array_equal(pb.grad(lambda x: quotient(x) * 1.0)(np.ones(2)), [0.0, 0.0])


def test_each_row_of_a_batch_takes_its_path() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 3.0], [3.0, 5.0]])
    np.testing.assert_array_equal(pb.vmap(quotient)(rows), [-1.0, 0.0, -0.5])
    strict = pb.jit(quotient, guards=False)
    assert strict(rows[0]) == -1.0
    assert strict(np.ones(2)) == 0.0


def slope_of_rows(x: Array) -> Any:
    try:
        return pb.vmap(lambda v: 1.0 / (v * 1.0 - float(x[0])))(x[1:])[0]
    except ZeroDivisionError:
        return 0.0


def test_a_row_of_a_batch_in_a_statement() -> None:
    assert pb.jit(slope_of_rows)(np.array([1.0, 3.0, 2.0])) == 0.5


def sum_of_inverses(x: Array, k: int) -> Any:
    try:
        return pb.fori_loop(0, 3, lambda i, s: s + 1.0 / float(x[i]), 0.0)
    except ZeroDivisionError:
        return -1.0


def of_an_unbound_variable(x: Array, k: int) -> Any:
    r = 0.5
    try:
        bounds: Any = None
        del bounds
        r += x[k]
    except IndexError:
        if r < x[0] and x[1] <= bounds[1]:  # noqa: F821
            r = 2.0
        print("%.2f" % (0.5 * x[0]))
    return r


@pytest.mark.parametrize(
    "function, held, fails, error",
    [
        (sum_of_inverses, (ONES.repeat(2), 0), (ZERO.repeat(2), 0), "ZeroDivisionError"),
        (of_an_unbound_variable, (ONES, 1), (ZERO, 4), "IndexError"),
    ],
)
def test_where_no_path_can_be_taken_a_call_with_the_error_is_refused(
    function: Callable[..., Any], held: tuple[Any, ...], fails: tuple[Any, ...], error: str
) -> None:
    """As in a body of ``pb.fori_loop`` in the ``try`` statement, whose clause would otherwise not run."""
    compiled = pb.jit(function)
    for _ in range(2):
        assert bare_text(compiled(*held)) == bare_text(function(*held))
        with pytest.raises(pb.TraceError, match=rf"test_handlers.py:\d+: {error} is raised here, which an except clause handles"):
            compiled(*fails)


def test_clauses_of_an_instruction() -> None:
    def function(f: Any) -> None:
        try:
            f(1)
        except (ValueError, np.linalg.LinAlgError):
            f(2)
        except KeyError:
            pass
        try:
            with f(3):
                f(4)
        except:  # noqa: E722
            pass
        try:
            f(5)
        finally:
            f(6)

    classes = {"ValueError": ("ValueError",), "LinAlgError": ("np", "linalg", "LinAlgError"), "KeyError": ("KeyError",)}
    calls = [i for i in dis.get_instructions(function.__code__) if i.opname == "CALL"]
    first = function.__code__.co_firstlineno
    classes_at = [(i, {*itertools.chain(*_statements(function.__code__, i.offset, False))}) for i in calls]
    seen = {i.positions.lineno - first: clauses for i, clauses in classes_at if i.positions}
    assert seen[2] == set(classes.values())
    assert seen[4] == set()
    assert seen[9] == {("BaseException",)}
    assert seen[13] == set()


def catches_a_refusal(q: Any, x: Array, n: Any) -> Any:
    try:
        r: Any = 1.0
        for y in {1.0, 2.0}:
            if x[0] > y:
                r = x
    except Exception:
        if q < 100.0:
            raise KeyError("small") from None
    return (1, 2, 3)[n] / 0 + r


def test_a_check_of_a_clause_that_caught_a_refusal_decides_nothing() -> None:
    for x in (np.zeros(3), np.ones(3) + 0.5):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            pb.jit(catches_a_refusal)(1.0, x, 1)


class Found(Exception):
    """Found at an index, with a value."""

    def __init__(self, index: Any, value: Any) -> None:
        super().__init__(index, value)
        self.index, self.value = index, value


def counted_keys(x: Array) -> Any:
    counts: dict[int, int] = {}
    for v in x:
        try:
            counts[int(v)] += 1
        except KeyError:
            counts[int(v)] = 1
    return counts


def looked_up(x: Array) -> Any:
    weights = {0: 2.0, 1: 5.0, -1: 0.5}
    total = 0.0
    for v in x:
        try:
            w = weights[int(v)]
        except KeyError:
            continue
        total += w * v
    return total


def neighbours(x: Array) -> Any:
    total, outside = 0.0, 0
    for i in range(len(x)):
        try:
            total += x[i] * x[i + int(2 * x[i])]
        except IndexError:
            outside += 1
    return total, outside


def with_all_clauses(x: Array) -> Any:
    total, n = 0.0, 0
    for v in x:
        try:
            y = math.log(v)
        except (ValueError, OverflowError):
            total -= 0.5 * v
        else:
            total += y
        finally:
            n += 1
    return total * n


def one_in_another(x: Array) -> Any:
    total = 0.0
    for v in x:
        try:
            try:
                total += 1 / float(v)
            except KeyError:
                total += 1000.0
            finally:
                total += 0.5
        except ZeroDivisionError:
            total += 7.0
        else:
            total *= 0.99
    return total


def of_branches(x: Array) -> Any:
    total = 0.0
    for v in x:
        try:
            total += 1 / float(v) if v < 1.0 else math.log(2.0 - v)
        except (ZeroDivisionError, ValueError):
            total += v
    return total


def helped(v: Any) -> Any:
    if v < 0:
        raise ValueError(f"{v} is negative")
    return np.sqrt(v + 0.25)


def by_statements(x: Array) -> Any:
    total = 0.0
    for v in x:
        try:
            total += helped(v)
        except ValueError:
            total -= v
    return total


def suppressed(x: Array) -> Any:
    total = 0.0
    for v in x:
        with contextlib.suppress(ZeroDivisionError):
            total += 1 / float(v)
            total *= 0.5
    return total


def around_a_loop(x: Array) -> Any:
    total, last = 0.0, 0.0
    try:
        for v in x:
            last = v * 2
            total += 1 / float(v)
    except ZeroDivisionError:
        return total - last
    return total


def around_loops(x: Array) -> Any:
    rows = x[: len(x) // 10 * 10].reshape(-1, 10)
    try:
        for i in range(rows.shape[0]):
            for j in range(rows.shape[1]):
                if rows[i, j] == 0:
                    raise Found(i, rows[i, j] + j)
    except Found as found:
        return found.index * 10 + found.value
    else:
        return -1.0


def of_a_helper_with_a_loop(x: Array) -> Any:
    def inner(v: Any) -> Any:
        return sum(1 / float(v - k) for k in range(3))

    total = 0.0
    for v in x:
        try:
            total += inner(v)
        except ZeroDivisionError:
            total -= 1.0
    return total


def until_an_index_error(x: Array) -> Any:
    total, i = 0.0, 0
    while True:
        try:
            total += x[i]
        except IndexError:
            break
        i += 3
    return total, i


def halved_until_it_is_defined(x: Array) -> Any:
    step, n = 8.0, 0
    while True:
        try:
            root = math.sqrt(abs(x[0]) - step)
            break
        except ValueError:
            step *= 0.5
            n += 1
            if n > 60:
                return step, n
    return root + step, n


def written_before(x: Array) -> Any:
    for i in range(len(x)):
        try:
            x[i] = x[i] * 2
            x[i] += 1 / float(x[i])
        except ZeroDivisionError:
            x[i] -= 5.0
    return np.sum(x)


def popped(x: Array) -> Any:
    stack, missed = [1.0], 0
    for v in x:
        try:
            if v > 0:
                stack.append(v)
            else:
                stack[-1] += stack.pop() + v
        except IndexError:
            missed += 1
    return sum(stack), missed


def left_by_return(x: Array) -> Any:
    with np.errstate(all="ignore"):
        for i, v in enumerate(x):
            if v > 1.5:
                return v * i
        square = x[0] * x[0]
    return square * 2


def left_by_others(x: Array) -> Any:
    total = 0.0
    for v in x:
        with np.errstate(divide="ignore", invalid="ignore"):
            if v < 0:
                continue
            part = np.sqrt(v + 0.25)
            if part > 1.8:
                break
        total += part
    return total


def left_with_a_last_clause(x: Array) -> Any:
    total, n = 0.0, 0
    for v in x:
        try:
            if v > 1.5:
                break
            total += v
        finally:
            n += 1
    return total * n


RNG = np.random.default_rng(5)
NUMBERS = RNG.normal(size=120)
WITH_ZEROS = np.where(np.arange(120) % 7 == 3, 0.0, NUMBERS)
WHOLE = np.round(2 * NUMBERS)
ROLLED: list[Callable[..., Any]] = [
    counted_keys, looked_up, neighbours, with_all_clauses, one_in_another, of_branches, by_statements, suppressed, around_a_loop,
    around_loops, of_a_helper_with_a_loop, until_an_index_error, halved_until_it_is_defined, written_before, popped,
    left_by_return, left_by_others, left_with_a_last_clause,
]  # fmt: skip
SMOOTH = [looked_up, with_all_clauses, one_in_another, of_branches, by_statements, suppressed, around_a_loop, left_by_others]


def close(a: Any, b: Any) -> bool:
    """Return whether two results have equal structures and types, and numbers that agree but for rounding."""
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict):
        return list(map(bare_text, a)) == list(map(bare_text, b)) and close([*a.values()], [*b.values()])
    return type(a) is type(b) and bool(np.allclose(a, b, rtol=1e-12, atol=1e-12))


@pytest.mark.parametrize("function", ROLLED, ids=[f.__name__ for f in ROLLED])
def test_one_program_has_all_paths(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for x in (NUMBERS, WITH_ZEROS, WHOLE, np.abs(NUMBERS)):
        assert close(*(outcome(f, (x.copy(),)) for f in (compiled, function)))


@pytest.mark.parametrize("function", SMOOTH, ids=[f.__name__ for f in SMOOTH])
def test_gradients_and_batches_of_all_paths(function: Callable[..., Any]) -> None:
    x = WITH_ZEROS[:40]
    slope = pb.grad(pb.jit(function, guards=False))
    direction = np.where(x == 0, 0.0, np.cos(np.arange(40.0)))
    expected = (function(x + 1e-6 * direction) - function(x - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(slope(x) @ direction, expected, rtol=1e-5, atol=1e-5)
    rows = np.stack([x, NUMBERS[:40], WHOLE[:40]])
    np.testing.assert_allclose(pb.vmap(pb.jit(function, guards=False))(rows), [function(r) for r in rows], rtol=1e-12)


def test_an_exception_of_the_users_has_its_values() -> None:
    def value(v: float, limit: float) -> Any:
        result = None
        try:
            if v > limit:
                raise Found(v, 2.0)
        except Found as found:
            result = found.args
        return result

    compiled = pb.jit(value, guards=False)
    assert compiled(1.5, 1.0) == (1.5, 2.0)
    assert compiled(1.5, 2.0) is None


def written_after_its_return(x: Any, c: Any) -> Any:
    a = x.copy()
    try:
        if c > 0:
            return c, a
        a[1] = 9.0
    finally:
        a[int(abs(c)) % 3] = c
    return c, a


def written_after_a_return_in_a_loop(x: Any, c: Any) -> Any:
    a = x.copy()
    for i in range(3):
        try:
            if c > i:
                return a
        finally:
            a[i] = c
    return a


def rebound_after_its_return(x: Any, c: Any) -> Any:
    a = x.copy()
    try:
        if c > 0:
            return a
    finally:
        a = a + 7.0
    return a


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
def test_a_finally_clause_writes_into_what_is_returned() -> None:
    for function in (written_after_its_return, written_after_a_return_in_a_loop, rebound_after_its_return):
        compiled = pb.jit(function)
        for c in (2.0, -1.0, 0.5, 9.0, 0.0):
            x = np.array([1.0, 2.0, 3.0])
            np.testing.assert_equal(compiled(x, c), function(x, c), f"{function.__name__} {c}")


def shifted(n: Any) -> Any:
    m, count = 1, 0
    for _ in range(n):
        try:
            m = m << 20
        except Exception:
            count += 1
    return m, count


def test_no_clause_handles_that_an_int_has_more_than_64_bits() -> None:
    compiled = pb.jit(shifted)
    assert compiled(np.int64(3)) == shifted(3)
    with pytest.raises(OverflowError, match="more than 64 bits"):
        compiled(np.int64(9))


def to_a_fraction(p: float) -> Any:
    try:
        return (-p) ** 0.5
    except ValueError:
        return -1.0


def to_a_negative_int(p: float) -> Any:
    try:
        return 2 ** -int(p)
    except ValueError:
        return -1.0


def sorted_numbers(p: float) -> Any:
    values = [p, 1.0, 2.0]
    try:
        values.sort()
    except ValueError:
        return -1.0
    return values[0]


@pytest.mark.parametrize(
    "function, held, fails, message",
    [
        (to_a_fraction, -4.0, 4.0, "which Python makes complex"),
        (to_a_negative_int, -3.0, 3.0, "which Python makes a float"),
        (sorted_numbers, 3.0, math.nan, "whose order no comparison decides"),
    ],
)
def test_no_clause_handles_what_is_no_error_in_python(function: Any, held: float, fails: float, message: str) -> None:
    compiled = pb.jit(function)
    for _ in range(2):
        assert compiled(held) == function(held)
        with pytest.raises(ValueError, match=message):
            compiled(fails)


def of_whole_numbers(p: float) -> Any:
    try:
        return "%s %5.1f %d" % (p, p, p)  # noqa: UP031
    except (OverflowError, ValueError) as error:
        return type(error).__name__, str(error)


def printed_whole_numbers(p: float) -> Any:
    level = 0
    for k in range(3):
        try:
            if k > p - 2.0:
                print("%d" % (k / p))  # noqa: UP031
        except OverflowError:
            level += 1
    return level


@pytest.mark.parametrize("function", [of_whole_numbers, printed_whole_numbers])
def test_floats_in_formats_of_whole_numbers(function: Any, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = pb.jit(function)
    for p in (1.5, math.inf, -math.inf, 1e-320, math.nan, -7.5):
        (expected, _), shown = outcome(function, (p,)), capsys.readouterr().out
        (actual, _), printed = outcome(compiled, (p,)), capsys.readouterr().out
        assert (bare_text(actual), printed) == (bare_text(expected), shown)


def printed_index(x: Array, k: Any) -> Any:
    try:
        return x[k]
    except IndexError as error:
        print("bad:", error)
        return 0.0


def returned_index(x: Array, k: Any) -> Any:
    try:
        return x[k]
    except IndexError as error:
        return f"{type(error).__name__}: {error}, " + str(error) + f", {error!r}"


def text_in_a_text(x: Array, k: Any) -> Any:
    text = f"{x[0]:.2f}"
    return f"{text!r} {text!s:>8}"


def known_part_of_a_text(x: Array, k: Any) -> Any:
    try:
        return x[k]
    except IndexError as error:
        return -1.0 if "out of bounds" in str(error) else -2.0


def raised_with_the_text(x: Array, k: Any) -> Any:
    try:
        x[k] = 1.0
    except IndexError as error:
        raise ValueError(f"wrong: {error}") from error
    return x


def printed_indices(x: Array, k: Any) -> Any:
    total = 0.0
    for i in range(5):
        try:
            total += x[i + k]
        except IndexError as error:
            print(i, error)
    return total


def arrays_of_indices(x: Array, k: Any) -> Any:
    try:
        return x[np.array([0, k, k + 1])].sum()
    except IndexError as error:
        return str(error)


def of_a_selection(x: Array, k: Any) -> Any:
    y = x[x > 1]
    try:
        return y[k]
    except IndexError as error:
        return str(error)


def printed_key(x: Array, k: Any) -> Any:
    try:
        return {1: 2.0, 3: 4.0}[k]
    except KeyError as error:
        print("missing", error)
        return 0.0


def position(x: Array, k: Any) -> Any:
    try:
        return [1.0, 2.0, 3.0].index(x[0] + k)
    except ValueError as error:
        return str(error)


def small_integer(x: Array, k: Any) -> Any:
    try:
        return np.int8(int(k) * 100) + x
    except OverflowError as error:
        return str(error)


@pytest.mark.parametrize(
    "function",
    [printed_index, returned_index, text_in_a_text, known_part_of_a_text, raised_with_the_text, printed_indices,
     arrays_of_indices, of_a_selection, printed_key, position, small_integer],
)  # fmt: skip
def test_the_exception_of_an_operation_has_pythons_text(function: Any, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = pb.jit(function)
    for k in (np.int64(1), np.int64(7), np.int64(-9), 7, -9, 1):
        expected, shown = outcome(function, (np.array([1.0, 2.0, 3.0, 0.0]), k)), capsys.readouterr().out
        actual, printed = outcome(compiled, (np.array([1.0, 2.0, 3.0, 0.0]), k)), capsys.readouterr().out
        assert (bare_text(actual), printed) == (bare_text(expected), shown)


def test_a_negative_number_of_elements_is_an_error() -> None:
    makers: list[Callable[[Any], Any]] = [
        np.zeros, np.eye, lambda n: np.full((2, n), 1.0), lambda n: np.zeros(n).sum(), lambda n: np.empty(n).shape,
        lambda n: np.broadcast_to(1.0, (n,)), lambda n: np.tile(np.ones(2), n), lambda n: np.resize(np.ones(2), (n,)), np.tri,
    ]  # fmt: skip
    for maker in makers:

        def made(x: Array, n: Any, maker: Any = maker) -> Any:
            return maker(int(n)) * 1.0 + x[0]

        def handled(x: Array, n: Any, made: Any = made) -> Any:
            try:
                return made(x, n)
            except ValueError:
                return x

        for function in (made, handled):
            for n in (np.int64(-9), -2, 2):
                assert bare_text(outcome(pb.jit(function), (ONES, n))) == bare_text(outcome(function, (ONES, n)))
