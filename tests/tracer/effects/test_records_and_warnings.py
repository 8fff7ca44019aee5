"""Records of ``logging``, warnings and writes into files: at each call, with the user's lines, in the order of Python."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

INPUTS = np.array([0.5, 1.5, -2.5]), np.array([0.25, 2.5, 1.0])
LOG = logging.getLogger("tests.effects")
LOG.setLevel(logging.INFO)
LOG.propagate = False
ADAPTER = logging.LoggerAdapter(LOG, {"run": 7})
PAGE = io.StringIO()
info = LOG.info


class Records(logging.Handler):
    """Keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info and repr(record.exc_info[1])
        at = record.pathname, record.lineno, record.funcName
        self.kept.append((record.levelname, record.getMessage(), *at, repr(record.args), getattr(record, "run", None), error))


RECORDS = Records()
LOG.addHandler(RECORDS)


def levels(x: Any) -> Any:
    LOG.info("x %s %.3f", x, x[0])
    LOG.debug("not shown %s", x)
    LOG.warning(f"w {x[0]:.2f}")
    info("bound %r", x[0])
    LOG.log(35, "level %d", 3)
    LOG.error("%(a)s", {"a": x[1]})
    logging.getLogger("tests.effects").critical("by name", stacklevel=1)
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("detail")
    return x


def adapted(x: Any) -> Any:
    ADAPTER.info("adapted %s", x[0])
    LOG.info("extra", extra={"run": 3})
    return x


def in_turns(x: Any) -> Any:
    for i in range(300):
        if i % 100 == 0:
            LOG.info("turn %d %s", i, x[0] * i)
    return x


def in_a_branch(x: Any) -> Any:
    if x[0] > 0.3:
        LOG.info("big")
        print("big")
    LOG.info("after")
    return x


def handled(x: Any) -> Any:
    try:
        if x[0] > 0.3:
            raise ValueError("bad")
    except ValueError as error:
        LOG.exception("failed %s", error)
        LOG.info("again", exc_info=True)
    return x


def inner(x: Any) -> Any:
    warnings.warn("from inner", stacklevel=2)
    LOG.info("from inner", stacklevel=2)
    return x


def warned(x: Any) -> Any:
    warnings.warn(f"low {x[0]:.2f}")  # noqa: B028
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    warnings.warn(UserWarning("object", float(x[1])))  # noqa: B028
    return inner(x)


def warned_under_filters(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("hidden")  # noqa: B028
    warnings.warn("shown")  # noqa: B028
    return x


def warned_in_turns(x: Any) -> Any:
    for i in range(300):
        if x[0] * i > 70:
            warnings.warn(f"big {i}")  # noqa: B028
    return x


def files(x: Any) -> Any:
    sys.stdout.write(f"a {x[0]}\n")
    sys.stderr.write("err\n")
    sys.stdout.flush()
    n = sys.stdout.write("abc\n")
    sys.stdout.writelines(["p\n", "q\n"])
    print("page", x[0], file=PAGE)
    PAGE.write(f"w {x[1]}")
    return n if sys.stdout.writable() else x


def options(x: Any) -> Any:
    with np.printoptions(precision=2):
        print(x / 3)
    print(x / 3)
    return x


def exceptions(x: Any) -> Any:
    try:
        if x[0] > 0.3:
            raise KeyError("k", 3)
    except KeyError as error:
        print("caught", error, repr(error))
    print(ValueError("v", x[0]))
    return x


def order(x: Any) -> Any:
    print("one")
    sys.stdout.write("two\n")
    for i in range(3):
        print("turn", i)
        sys.stdout.write(f"{x[i]}\n")
    return x


def raises(x: Any) -> Any:
    print("before", x[0])
    LOG.info("before %s", x[0])
    raise KeyError("k")


PROGRAMS = [
    levels, adapted, in_turns, in_a_branch, handled, warned, warned_under_filters, warned_in_turns, files, options, exceptions,
    order, raises,
]  # fmt: skip


def outcome(function: Callable[..., Any], x: Any) -> tuple[Any, ...]:
    """Return what a call writes, logs and warns, and its result or error, as texts."""
    out, err = io.StringIO(), io.StringIO()
    RECORDS.kept.clear()
    PAGE.seek(0)
    PAGE.truncate()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("always")
        try:
            result = repr(function(x.copy()))
        except Exception as error:
            result = repr(error)
    said = [(repr(w.message), w.category.__name__, w.filename, w.lineno) for w in caught]
    said = [w for w in said if w[1] != "RetraceWarning"]
    return out.getvalue(), err.getvalue(), list(RECORDS.kept), said, PAGE.getvalue(), result


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_a_call_has_the_effects_of_python(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function)
    assert any(outcome(function, INPUTS[0])[:5])
    for x in (*INPUTS, *INPUTS):
        assert outcome(compiled, x) == outcome(function, x)


@pytest.mark.parametrize("function", [levels, in_turns, in_a_branch, warned, warned_in_turns, files], ids=lambda f: f.__name__)
def test_a_gradient_has_them_once(function: Callable[..., Any]) -> None:
    def total(x: Any) -> Any:
        function(x)
        return np.sum(x * x)

    expected = outcome(total, INPUTS[0])[:5]
    for transformed in (pb.jit(total), pb.grad(total), pb.hessian(total), pb.grad(pb.checkpoint(total))):
        assert [w[0] for w in outcome(transformed, INPUTS[0])[3]] == [w[0] for w in expected[3]]
        assert outcome(transformed, INPUTS[0])[:2] == expected[:2]
        assert [r[:2] for r in outcome(transformed, INPUTS[0])[2]] == [r[:2] for r in expected[2]]


def test_a_level_counts_at_the_call() -> None:
    compiled = pb.jit(levels)
    try:
        for level in (logging.INFO, logging.DEBUG, logging.ERROR, logging.INFO):
            LOG.setLevel(level)
            assert outcome(compiled, INPUTS[0]) == outcome(levels, INPUTS[0])
    finally:
        LOG.setLevel(logging.INFO)


def test_a_warning_as_an_error_has_the_users_line_and_nothing_is_stored() -> None:
    def f(x: Any) -> Any:
        x[0] = 9.0
        if x[1] > 0:
            warnings.warn(f"bad {x[1]}")  # noqa: B028  # fails here
        x[1] = 9.0
        return x

    compiled, x = pb.jit(f), INPUTS[0].copy()
    for _ in range(2):
        with warnings.catch_warnings(), pytest.raises(UserWarning, match=r"bad 1\.5") as caught:
            warnings.simplefilter("error")
            compiled(x)
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert last.name == "f" and (last.line or "").endswith("# fails here")
        np.testing.assert_array_equal(x, INPUTS[0])


def test_a_default_filter_shows_one_warning_for_each_line() -> None:
    def f(x: Any) -> Any:
        for i in range(300):
            if i % 100 == 0:
                warnings.warn("same")  # noqa: B028
        return x

    compiled = pb.jit(f)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        globals().pop("__warningregistry__", None)
        compiled(INPUTS[0]), compiled(INPUTS[1])
    assert [str(w.message) for w in caught] == ["same"]


def test_what_reads_a_file_is_refused() -> None:
    reads = (lambda x: PAGE.read(), lambda x: PAGE.getvalue(), lambda x: list(PAGE), lambda x: sys.stdin.read())
    for function in reads:
        with pytest.raises(pb.TraceError, match="an open file"):
            pb.jit(function)(INPUTS[0])


def test_effects_of_the_trace_are_those_of_one_call() -> None:
    def f(x: Any) -> Any:
        LOG.info("traced")
        warnings.warn("traced")  # noqa: B028
        sys.stdout.write("traced\n")
        return x

    compiled = pb.jit(f, effects="trace")
    first, second = outcome(compiled, INPUTS[0]), outcome(compiled, INPUTS[0])
    assert first[0].startswith("traced\n") and first[2] and first[3]
    assert not any(second[:5])


def test_a_progress_bar_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    class tqdm(list[Any]):
        """Stands for the library's class."""

    module = types.ModuleType("tqdm")
    module.tqdm = tqdm  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", module)

    def f(x: Any) -> Any:
        for i in tqdm(range(3)):
            x = x + i
        return x

    with pytest.raises(pb.TraceError, match="loop over the range or array itself"):
        pb.jit(f)(INPUTS[0])
    np.testing.assert_array_equal(pb.jit(f, effects="trace")(INPUTS[0]), f(INPUTS[0]))
