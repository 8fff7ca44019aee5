"""Tests of every op, generated from the op table: a new row is tested without a change here (``op_cases`` has the domains)."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.ir import OPS, ArrayType, Builder, Op, Value
from pullback.ir.core.op import resolve
from pullback.ir.core.types import DTYPES, F64
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.loops import Loop, StackLength, Switch
from pullback.ir.ops.control.markers import Barrier, CotangentTap, Saved, Stop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.elementwise.gamma_beta_erf import Draw
from pullback.ir.ops.library.family import Composed, Linalg
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.text import parse_function, print_function
from pullback.ir.verify import verify
from tests.support.golden_files import assert_same, run_targets
from tests.support.gradients import check_by_differences, gradient_of_gradient, loss_of, with_gradient
from tests.support.op_cases import Case, case_function, cases, covered_ops, of_function, sample, special_arguments

TESTED = covered_ops()
SEPARATE = {
    *("group", "gradient", "jvp", "vmap", "check", "print", "callback", "clock", "custom", "scatter_sum", "unsort"),
    "define_extent",
    *(op.name for op in OPS.values() if isinstance(op, Switch | Loop | StackLength | CotangentTap | Stop | Barrier | Saved)),
}
every_op = pytest.mark.parametrize("op", TESTED, ids=lambda op: op.name)


NARROW = {F64: DTYPES["f32"], DTYPES["c128"]: DTYPES["c64"]}


def seeded(op: Op) -> np.random.Generator:
    return np.random.default_rng(sum(map(ord, op.name)))


def differentiable(op: Op) -> Iterator[tuple[Case, list[int]]]:
    """The cases of an op with inexact operands and results of 64 bits (or parts of 64), and the operands that may be wanted.

    How draws move is in test_random.
    """
    for case in cases(op) if "func" in op.vocabularies and not isinstance(op, Draw) else ():
        is_free = [t.dtype in NARROW and k not in op.missing for k, t in enumerate(case.types)]
        wanted = [k for k, free in enumerate(is_free) if free and not op.nondifferentiable]
        if wanted and case.results()[0].dtype.is_inexact:
            meant = of_function(case)
            yield meant, wanted[: len(meant.types)]


def precision(case: Case) -> dict[str, float]:
    """Step and tolerance of differences; results of less than 64 bits come from ops that are linear."""
    result, *_ = case.results()
    return {64: {}, 32: {"step": 0.1, "tolerance": 1e-5}, 16: {"step": 0.1, "tolerance": 2e-2}}[result.dtype.part.bits]


def check_forward(op: Op) -> None:
    """Text, type rule and values of each case, on every target there is."""
    rng = seeded(op)
    for case in cases(op):
        function = case_function(case)
        if "func" in op.vocabularies:
            verify(function)
        assert print_function(parse_function(print_function(function))) == print_function(function)
        arguments = case.arguments(rng)
        expected = interpret(function, *arguments)
        assert [(e.dtype, e.shape) for e in expected] == [(t.dtype.numpy, t.shape) for t in case.results()], str(case)
        raw = raw_result(case, arguments)
        assert raw is None or (raw.dtype, raw.shape) == (expected[0].dtype, expected[0].shape), str(case)
        if "func" in op.vocabularies:
            is_library = isinstance(op, Linalg | Composed)
            close, close_single = (1e-9, 2e-3) if is_library else (1e-13, 1e-6)
            for results in run_targets(function, arguments).values():
                assert_same(results, expected, bitwise=False, rtol=close_single if expected[0].dtype == np.float32 else close)


def raw_result(case: Case, arguments: list[Any]) -> Any:
    """What the reference gives before the op's type is put on it."""
    if case.op.reference is None or not isinstance(case.op, Elementwise):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(case.op.function(*arguments, **case.params))


def check_gradients(op: Op) -> None:
    """Orders 1 and 2 against differences, for all operands and for each alone, and with one value as all operands."""
    rng = seeded(op)
    for case, wanted in differentiable(op):
        arguments = case.arguments(rng)
        loss, extra = loss_of(case)
        weights = [np.asarray(sample(rng, t, (0.3, 1.5))) for t in extra]
        for wrt in [wanted, *([k] for k in wanted if len(wanted) > 1)]:
            function = with_gradient(loss, case.types, wrt, extra)
            check_by_differences(function, [*arguments, *weights], wrt, rng, **precision(case))
        second = gradient_of_gradient(loss, case.types, wanted, extra)
        directions = [np.asarray(sample(rng, case.types[k], (0.3, 1.5))) for k in wanted]
        check_by_differences(second, [*arguments, *weights, *directions], wanted, rng, **precision(case))
        if len(case.types) > 1 and len(set(case.types)) == 1 and not op.missing:
            loss, extra = loss_of(case, repeat=True)
            check_by_differences(with_gradient(loss, case.types[:1], [0], extra), [arguments[0], *weights], [0], rng)


def check_single_precision(op: Op) -> None:
    """Gradients in float32 are those in float64, rounded."""
    rng = seeded(op)
    for case, wanted in differentiable(op):
        if case.params.get("dtype") is not None:
            continue
        narrow = replace(case, types=tuple(t.with_dtype(NARROW.get(t.dtype, t.dtype)) for t in case.types))
        arguments = narrow.arguments(rng)
        result = []
        for which in (narrow, case):
            loss, extra = loss_of(which)
            weights = [np.asarray(np.linspace(0.5, 1.5, int(np.prod(t.shape)))).reshape(t.shape) for t in extra]
            inputs = [
                np.asarray(a).astype(t.dtype.numpy) for a, t in zip([*arguments, *weights], [*which.types, *extra], strict=True)
            ]
            result.append(interpret(verify(grad(with_gradient(loss, which.types, wanted, extra))), *inputs)[1:])
        for a, b in zip(*result, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * (1 + np.max(np.abs(b), initial=0)))


@every_op
def test_types_and_values(op: Op) -> None:
    check_forward(op)


@every_op
def test_gradients_agree_with_differences(op: Op) -> None:
    check_gradients(op)


@every_op
def test_single_precision_gradients(op: Op) -> None:
    check_single_precision(op)


@pytest.mark.parametrize("op", [op for op in TESTED if isinstance(op, Elementwise)], ids=lambda op: op.name)
def test_special_values_neither_raise_nor_warn(op: Elementwise) -> None:
    for case in cases(op):
        if case.types[0].shape != (3,):
            continue
        arguments = special_arguments(case)
        types = op.infer(
            [t.with_shape(a.shape) for t, a in zip(case.types, arguments, strict=True)], case.params, (), lambda a, b: None
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (result,) = op.evaluate(arguments, case.params, types)
        assert (result.dtype, result.shape) == (types[0].dtype.numpy, arguments[0].shape)


NAMED = [(op, name) for op in TESTED for name in dict.fromkeys((*op.also, op.reference)) if isinstance(name, str)]


@pytest.mark.parametrize(("op", "name"), NAMED, ids=[f"{op.name}-{name}" for op, name in NAMED])
def test_ops_mean_what_their_names_mean_in_numpy(op: Op, name: str) -> None:
    rng = seeded(op)
    for case in cases(op):
        if case.params or case.types[0].dtype.name not in ("f64", "i64", "bool", "c128"):
            continue
        arguments = case.arguments(rng)
        function = resolve(name)
        if case.types[0].dtype.is_complex and isinstance(function, np.ufunc) and "D" not in "".join(function.types):
            continue
        if op.name == "pow" or name == "numpy.float_power" or "mod" in op.name or "div" in op.name:
            arguments = [np.where(a <= 0, 1, a).astype(a.dtype) if a.dtype.kind == "i" else a for a in arguments]
        (result,) = interpret(case_function(case), *arguments)
        np.testing.assert_allclose(result, function(*arguments), rtol=1e-14)


def test_no_op_is_without_cases() -> None:
    covered = {op.name for op in TESTED if cases(op)} | SEPARATE
    assert {op.name for op in OPS.values() if "func" in op.vocabularies or isinstance(op, Elementwise)} <= covered


def test_every_op_has_a_rule_or_a_reason() -> None:
    for op in TESTED:
        if "func" in op.vocabularies and any(case.types for case in cases(op)):
            assert (op.pullback is None) == bool(op.nondifferentiable), op.name


MODULE = '''
"""An op that no other file knows."""

import numpy as np

from pullback.ir.ops.elementwise.elementwise import Elementwise, const_like, each


def squared_meaning(x):
    return np.multiply(x, x)


squared = Elementwise(
    name="squared",
    reference=squared_meaning,
    pullback=each(lambda b, ct, out, x: b.mul(ct, b.add(x, x))),
    llvm="fmul {t} {0}, {0}",
    cuda="{0} * {0}",
)
'''


@pytest.fixture
def new_op(tmp_path: Path) -> Iterator[Any]:
    """A module that adds an op, gone after the test."""
    path = tmp_path / "squared_op.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("squared_op", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["squared_op"] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        OPS.pop("squared", None)
        del sys.modules["squared_op"]


def test_a_row_in_a_new_module_is_a_whole_op(new_op: Any) -> None:
    assert "squared" in [op.name for op in covered_ops()]
    check_forward(new_op.squared)
    check_gradients(new_op.squared)
    check_single_precision(new_op.squared)


def test_a_name_is_taken_once(new_op: Any) -> None:
    with pytest.raises(ValueError, match="there is an op squared already"):
        Elementwise(name="squared", reference="numpy.square")


def test_group_runs_its_region_and_check_fails_by_name() -> None:
    text = """func f(%x: f64[n]) -> (f64[n]) {
      %y: f64[n] = group %x (%p: f64[n]) {
        %q: f64[n] = exp %p
        yield %q
      }
      %positive: bool[n] = gt %y, %y
      check %positive {error="ValueError", message="exp must exceed itself"}
      return %y
    }"""
    function = verify(parse_function(text))
    with pytest.raises(Exception, match="exp must exceed itself") as raised:
        interpret(function, np.ones(2))
    assert raised.value.error == "ValueError"  # type: ignore[attr-defined]
    assert_same(interpret(function, np.ones(0)), [np.exp(np.ones(0))])


def test_builder_names_the_op_and_the_types_it_refuses() -> None:
    b = Builder()
    x, y = (Value(ArrayType(F64, (n,))) for n in (2, 3))
    with pytest.raises(TypeError, match=r"add\(f64\[2\], f64\[3\]\): extents 2 and 3 must be equal"):
        b.add(x, y)
