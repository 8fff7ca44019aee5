"""What leaves a call: the user's frames, the source line, the origins of values; TraceErrors that nothing hides."""

from __future__ import annotations

import concurrent.futures
import functools
import linecache
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.user_code.source import shown

X = np.linspace(0.1, 0.7, 4)
OURS = ("pullback", "tracer", "runtime", "ir", "codegen", "numpy", "scipy")


def raised(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def frames(error: BaseException) -> list[str]:
    """The functions in an error's traceback, as ``name`` in this file and ``file:name`` elsewhere."""
    entries = traceback.extract_tb(error.__traceback__)
    return [e.name if e.filename == __file__ else f"{Path(e.filename).name}:{e.name}" for e in entries]


def chain(error: BaseException) -> list[BaseException]:
    """An error and those that Python prints before it."""
    result = [error]
    while (cause := result[-1].__cause__ or (None if result[-1].__suppress_context__ else result[-1].__context__)) is not None:
        result.append(cause)
    return result


@pb.jit(loops="unroll")
def helper(x: Any) -> Any:
    return x / 2 if x > 0 else x


def caller(x: Any) -> Any:
    return helper(np.sum(x)) + 1


def wrong_shapes(x: Any) -> Any:
    return np.concatenate([x, x[None]])


def own_error(x: Any) -> Any:
    raise KeyError("mine")


def own_chain(x: Any) -> Any:
    try:
        {}["absent"]
    except KeyError as error:
        raise ValueError("mine") from error


def picks(x: Any, i: Any = 9) -> Any:
    return x[i] * 2


def with_partial(x: Any) -> Any:
    return functools.partial(helper, x=x[0])()


def mapped(x: Any) -> Any:
    return list(map(helper, x))


def vectorized(x: Any) -> Any:
    return np.vectorize(helper)(x)


class Model:
    def __init__(self) -> None:
        self.scale = 2.0

    @pb.jit
    def __call__(self, x: Any) -> Any:
        return helper(self.scale * x[0])

    @pb.jit
    def value(self, x: Any) -> Any:
        return helper(self.scale * x[0])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: pb.jit(caller)(X), ["caller", "helper"]),
        (lambda: pb.grad(caller)(X), ["caller", "helper"]),
        (lambda: pb.jit(pb.grad(pb.jit(caller)))(X), ["caller", "helper"]),
        (lambda: pb.jit(lambda x: pb.grad(caller)(x))(X), ["<lambda>", "caller", "helper"]),
        (lambda: pb.jit(caller).stages(X), ["caller", "helper"]),
        (lambda: pb.jit(wrong_shapes)(X), ["wrong_shapes"]),
        (lambda: pb.jit(own_error)(X), ["own_error"]),
        (lambda: pb.jit(own_chain)(X), ["own_chain"]),
        (lambda: pb.jit(picks)(X, 9), ["picks"]),
        (lambda: pb.jit(picks)(X, np.array([0, 9])), ["picks"]),
        (lambda: pb.jit(with_partial)(X), ["with_partial", "helper"]),
        (lambda: pb.jit(mapped)(X), ["mapped", "helper"]),
        (lambda: pb.jit(vectorized)(X), ["vectorized", "helper"]),
        (lambda: Model().value(X), ["value", "helper"]),
        (lambda: Model()(X), ["__call__", "helper"]),
        (lambda: pb.jit(caller)(), []),
        (lambda: pb.jit(caller)(np.array(["a"])), []),
        (lambda: pb.jit(caller, device="tpu"), []),
        (lambda: pb.grad(caller, argnums="x"), []),
        (lambda: pb.jit(static_argnames="q")(caller), []),
    ],
)
def test_tracebacks_show_the_users_frames(call: Callable[[], Any], expected: list[str]) -> None:
    error = raised(call)
    assert frames(error) == ["raised", "<lambda>", *expected]
    for other in chain(error)[1:]:
        assert frames(other) == ["own_chain"]


def item_written(x: Any, i: Any) -> Any:
    y = x.copy()
    y[i] = 1.0
    return y


def added_at(x: Any, i: Any) -> Any:
    y = x.copy()
    np.add.at(y, i, 1.0)
    return y


def argument_written(x: Any, i: Any) -> Any:
    x[i] = 0.0
    return np.sum(x)


def lines_apart(x: Any, i: Any) -> Any:
    return np.sum(
        x[
            i
        ]
    )  # fmt: skip


FAR, ONES, SINGULAR = np.array([1, 7]), np.ones(3), np.zeros((2, 2))
FAILING: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x, i: x[i] * 2, (ONES, FAR)),
    (lambda x, i: x[i] * 2, (np.ones((3, 4)), -FAR)),
    (lambda x, i, j: x[i, j], (np.ones((3, 4)), np.array([0, 1]), np.array([[3], [4]]))),
    (np.take, (ONES, FAR)),
    (lambda x, i: np.take_along_axis(x, i, 0), (ONES, FAR)),
    (item_written, (ONES, FAR)),
    (added_at, (ONES, FAR)),
    (argument_written, (ONES, FAR)),
    (lines_apart, (ONES, FAR)),
    (lambda i, x: np.choose(i, [x, x]), (np.array([0, 4]), np.ones(2))),
    (lambda x, w: np.average(x, weights=w), (ONES, np.zeros(3))),
    (lambda n, k: n**k, (np.arange(3), np.array([1, -1, 0]))),
    (lambda x: int(x), (np.nan,)),
    (np.linalg.cholesky, (-np.eye(2),)),
    (np.linalg.solve, (SINGULAR, np.ones(2))),
    (np.linalg.inv, (SINGULAR,)),
]


@pytest.mark.parametrize(("function", "args"), FAILING)
def test_what_fails_in_compiled_code_fails_as_in_numpy(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    outer = pb.jit(lambda *values: function(*values))
    plain = raised(lambda: function(*args))
    for call in (outer, pb.jit(outer)):
        error = raised(lambda call=call: call(*args))
        assert (type(error), str(error)) == (type(plain), str(plain))
        assert frames(error)[:2] == ["raised", "<lambda>"]
        assert len(frames(error)) == 3
        assert f"at {shown(__file__)}:{traceback.extract_tb(error.__traceback__)[-1].lineno}, in" in error.__notes__[0]


def test_the_variable_keeps_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_TRACEBACK", "full")
    result = frames(raised(lambda: pb.jit(caller)(X)))
    assert "function.py:__call__" in result and "trace.py:trace" in result and "traced.py:__bool__" in result


def test_errors_met_and_replaced_inside_are_not_shown() -> None:
    def inside(x: Any) -> Any:
        return np.moveaxis(x, 5, 0)

    for function in (inside, wrong_shapes, own_error):
        assert len(chain(raised(lambda function=function: pb.jit(function)(X)))) == 1
    assert [type(e) for e in chain(raised(lambda: pb.jit(own_chain)(X)))] == [ValueError, KeyError]


def test_an_error_that_was_being_handled_stays_as_it_was() -> None:
    def call() -> None:
        try:
            np.linalg.inv(np.zeros((2, 2)))
        except np.linalg.LinAlgError:
            pb.jit(caller)(X)

    *_, first = chain(raised(call))
    assert isinstance(first, np.linalg.LinAlgError)
    assert any("_linalg.py" in name for name in frames(first))


def test_a_trace_error_can_be_pickled() -> None:
    error = raised(lambda: pb.jit(caller)(X))
    assert isinstance(error, pb.TraceError)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert str(raised(lambda: pool.submit(pb.jit(caller), X).result())) == str(error)


def test_the_parts_of_a_trace_error() -> None:
    error = raised(lambda: pb.jit(caller)(X))
    assert isinstance(error, pb.TraceError)
    line = helper.__wrapped__.__code__.co_firstlineno + 2
    assert (error.file, error.line) == (__file__, line)
    assert error.message == f"a Python branch (if ... else) on a traced value; {error.hint}"
    assert error.hint == "write np.where(x > 0, x / 2, x), which computes both; or follow it by pb.jit(guards=True)"
    assert error.source == "return x / 2 if x > 0 else x\n                ^^^^^"
    built = caller.__code__.co_firstlineno + 1
    assert error.origins == (f"x is traced f64[], from return helper(np.sum(x)) + 1 at {shown(__file__)}:{built}",)
    assert f"{error}".splitlines() == [
        f"{shown(__file__)}:{line}: a Python branch (if ... else) on a traced value",
        *(f"    {text}" for text in error.source.splitlines()),
        *(f"  {text}" for text in error.origins),
        f"  {error.hint}",
    ]


def test_origins_of_values() -> None:
    class Weights:
        def __init__(self) -> None:
            self.bias = np.ones(2)

    weights = Weights()
    table = {"a": [np.ones(2)]}

    def origins(function: Callable[..., Any], *args: Any) -> list[str]:
        error = raised(lambda: pb.jit(function, loops="unroll")(*args))
        assert isinstance(error, pb.TraceError)
        return [text.partition(" is traced ")[2] for text in error.origins]

    def renamed(params: Any) -> Any:
        w = params["layers"][0]
        return 1 if w.sum() > 0 else 0

    assert origins(renamed, {"layers": [X]}) == ["f64[4], the argument params['layers'][0]"]
    assert origins(lambda p: 1 if p["w"] > 0 else 0, {"w": 1.0}) == ["Python float, an argument"]
    assert origins(lambda x: 1 if weights.bias[0] > 0 else x, 1.0) == ["f64[2], <Weights>.bias from outside the function"]
    assert origins(lambda x: 1 if table["a"][0][0] > x else x, 1.0)[0].endswith("from outside the function")
    assert origins(lambda *rest: 1 if rest[1] > 0 else 0, 1.0, 2.0) == ["Python float, the argument rest_1"]
    assert origins(lambda x: 1 if [x][0] * 2 > 0 else 0, 1.0) == ["Python float, an argument"]


def test_static_arguments_are_offered_where_they_can_be() -> None:
    for transform, offered in ((pb.jit, True), (pb.grad, False)):
        error = raised(lambda transform=transform: transform(helper)(1.0))
        assert isinstance(error, pb.TraceError)
        assert ("or name x in static_argnames" in error.hint) == offered
        assert len(error.origins) == 1


def test_methods_that_traced_arrays_have_not_can_be_asked_for() -> None:
    np.testing.assert_array_equal(pb.jit(lambda x: x * 2 if hasattr(x, "tobytes") else x)(X), X * 2)
    assert "return the array" in str(raised(lambda: pb.jit(lambda x: x.tobytes())(X)))


def program(text: str, name: str) -> dict[str, Any]:
    """The names of a program whose source only linecache knows, as in a notebook."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    built: dict[str, Any] = {"np": np, "__name__": "cell"}
    exec(compile(text, name, "exec"), built)
    return built


def test_source_that_is_in_no_file() -> None:
    cell = program("def f(x):\n    größe = np.sum(x); return größe if größe > 0 else -größe\n", "<cell 3>")
    error = raised(lambda: pb.jit(cell["f"], loops="unroll")(X))
    assert str(error).splitlines()[:3] == [
        "<cell 3>:2: a Python branch (if ... else) on a traced value",
        "    größe = np.sum(x); return größe if größe > 0 else -größe",
        "                                       ^^^^^^^^^",
    ]
    unknown: dict[str, Any] = {}
    exec("def f(x):\n    return x if x > 0 else -x\n", unknown)
    error = raised(lambda: pb.jit(unknown["f"], loops="unroll")(1.0))
    assert str(error).startswith("<string>:2: a Python branch (if, while, and, or, not) on a traced value\n")
    indexing = program("def f(x, i):\n    return x[\n        i]\n", "<cell 4>")
    failed = raised(lambda: pb.jit(indexing["f"])(X, np.array([7])))
    assert frames(failed)[-1] == "<cell 4>:f"


BRANCHES = [
    (
        "if x > 0 and not y > 1:\n  z = x\n else:\n  z = y\n return z",
        "z = np.where(np.logical_and(x > 0, np.logical_not(y > 1)), x, y)",
        "{}; return z",
    ),
    ("if 0 < x <= y: x = 2 * x\n return x", "x = np.where((0 < x) & (x <= y), 2 * x, x)", "{}; return x"),
    ("if x > y: x += y\n return x", "x = np.where(x > y, x + y, x)", "{}; return x"),
    ("if x > y:\n  return x\n return y", "return np.where(x > y, x, y)", "{}"),
    ("if x > y:\n  x = 1.0\n  y = 2.0\n return x * y", "np.where(x > y, a, b)", "a, b = 2.0, x * y; return {}"),
    ("return x if (x > 0 or\n  y > 0) else y", "np.where(np.logical_or(x > 0, y > 0), x, y)", "return {}"),
    ("return (x > 0 or y > 0) * x", "np.logical_or(x > 0, y > 0)", "return {} * x"),
    ("return 1.0 * (not x)", "np.logical_not(x)", "return 1.0 * {}"),
    ("return -x if x not in [y] else x", "np.where(np.all(np.not_equal([y], x)), -x, x)", "return {}"),
    ("return -x if x in (y, 2.5) else x", "np.where(np.any(np.equal((y, 2.5), x)), -x, x)", "return {}"),
]


@pytest.mark.parametrize(("body", "instead", "written"), BRANCHES, ids=[b for b, *_ in BRANCHES])
def test_what_to_write_instead_of_a_branch_does_the_same(body: str, instead: str, written: str) -> None:
    plain = program(f"def f(x, y):\n {body}\n", f"<{body}>")["f"]
    error = raised(lambda: pb.jit(plain, loops="unroll")(1.0, 2.0))
    assert isinstance(error, pb.TraceError)
    assert error.hint.startswith(f"write {instead}")
    built = program(f"def f(x, y):\n {written.format(instead)}\n", f"<{instead}>")["f"]
    for x in (-1.5, 0.5, 2.5):
        for y in (-0.5, 0.5, 3.0):
            assert pb.jit(built)(x, y) == built(x, y) == plain(x, y)


def test_a_call_that_fails_prints_as_python_does(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import numpy as np\nimport pullback as pb\n\n@pb.jit\ndef f(x, i):\n    return x[i]\n\nf(np.ones(3), np.array([5]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, str(path)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if set(line.strip()) - set("^~")]
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 8, in <module>',
        "    f(np.ones(3), np.array([5]))",
        f'  File "{path}", line 6, in f',
        "    return x[i]",
        "IndexError: index 5 is out of bounds for axis 0 with size 3",
        "  at model.py:6, in compiled code: return x[i]",
    ]
