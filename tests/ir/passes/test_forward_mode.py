"""Forward mode of every op, generated from the op table: it agrees with reverse mode, and transforms nest in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pullback.ir import OPS, ArrayType, Block, Builder, Function, Op, Value
from pullback.ir.core.structure import walk
from pullback.ir.core.types import F64
from pullback.ir.interpret import interpret
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.verify import verify
from tests.support.op_cases import Case, cases, covered_ops, sample

DIFFERENTIABLE = [op for op in covered_ops() if "func" in op.vocabularies and not op.nondifferentiable]


def inexact(types: Sequence[Any]) -> list[int]:
    return [k for k, t in enumerate(types) if t.dtype.is_inexact]


def region(case: Case, extra: Sequence[Any]) -> Block:
    """The op on its operands; further parameters are not read."""
    b = Builder()
    parameters = [Value(t, f"q{k}") for k, t in enumerate((*case.types, *extra))]
    return b.block(parameters, case.emit(b, parameters[: len(case.types)]))


def transformed(case: Case, name: str, wrt: Sequence[int], extra: Sequence[Any], params: dict[str, Any]) -> Function:
    """Return a function of the operands and ``extra`` with the results that a transform adds to the op's own."""
    b = Builder()
    parameters = [Value(t, f"p{k}") for k, t in enumerate((*case.types, *extra))]
    results = b.emit(OPS[name], parameters, {"wrt": tuple(wrt), **params}, [region(case, extra)])
    return verify(b.function("f", parameters, results[len(case.results()) :]))


def pushed(case: Case, wrt: Sequence[int]) -> Function:
    """The tangents of the results along tangents of the operands at ``wrt``."""
    extra = [case.types[k] for k in wrt]
    places = range(len(case.types), len(case.types) + len(extra))
    return transformed(case, "jvp", wrt, extra, {"tangents": tuple(places), "results": tuple(inexact(case.results()))})


def pulled(case: Case, wrt: Sequence[int]) -> Function:
    """The cotangents of the operands at ``wrt`` for cotangents of the results."""
    results = case.results()
    extra = [results[k] for k in inexact(results)]
    places = range(len(case.types), len(case.types) + len(extra))
    return transformed(case, "gradient", wrt, extra, {"seeds": tuple(places), "results": tuple(inexact(results))})


def pairing(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """The sum of products, of complex numbers its real part."""
    with np.errstate(all="ignore"):
        return float(sum(np.sum(np.asarray(x, np.complex128) * y).real for x, y in zip(xs, ys, strict=True)))


def differentiable(op: Op) -> list[tuple[Case, list[int]]]:
    result = [(case, [k for k in inexact(case.types) if k not in op.missing]) for case in cases(op)]
    return [(case, wrt) for case, wrt in result if wrt and inexact(case.results())]


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_forward_and_reverse_are_transposes(op: Op) -> None:
    """<ct, J t> = <J^T ct, t>, by all operands and by each alone."""
    rng = np.random.default_rng(1)
    for case, every in differentiable(op):
        results = case.results()
        arguments = case.arguments(rng)
        cts = [sample(rng, results[k]) for k in inexact(results)]
        narrow = min(results[k].dtype.bits // (1 + (results[k].dtype.kind == "c")) for k in inexact(results))
        narrow = min(narrow, *(case.types[k].dtype.bits // (1 + (case.types[k].dtype.kind == "c")) for k in every))
        for wrt in [every, *([k] for k in every if len(every) > 1)]:
            tangents = [sample(rng, case.types[k]) for k in wrt]
            forward = interpret(verify(grad(pushed(case, wrt))), *arguments, *tangents)
            reverse = interpret(verify(grad(pulled(case, wrt))), *arguments, *cts)
            left, right = pairing(cts, forward), pairing(reverse, tangents)
            scale = 1 + sum(float(np.sum(np.abs(x))) for x in (*forward, *reverse))
            assert abs(left - right) <= {64: 1e-11, 32: 1e-4, 16: 2e-2}[narrow] * scale, f"{case} by {wrt}"


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if isinstance(op, Elementwise)], ids=lambda op: op.name)
def test_forward_over_forward_is_reverse_over_forward(op: Op) -> None:
    """Second derivatives do not depend on the order of modes."""
    rng = np.random.default_rng(2)
    for case, wrt in differentiable(op):
        if case.types[0].shape != (3,) or any(t.dtype is not F64 for t in (*[case.types[k] for k in wrt], *case.results())):
            continue
        arguments = case.arguments(rng)
        tangents = [sample(rng, case.types[k]) for k in wrt]
        seed = sample(rng, case.results()[0])
        first = pushed(case, wrt)
        again = interpret(verify(grad(_outer(first, "jvp", wrt, [case.types[k] for k in wrt]))), *arguments, *tangents, *tangents)
        back = interpret(verify(grad(_outer(first, "gradient", wrt, case.results()))), *arguments, *tangents, seed)
        left, right = pairing([seed], again[1:]), pairing(back[1:], tangents)
        assert left == pytest.approx(right, rel=1e-10, abs=1e-10), str(case)


def _outer(function: Function, name: str, wrt: Sequence[int], extra: Sequence[Any]) -> Function:
    """A transform of a function that holds one, by the same operands."""
    count = len(function.parameters)
    data = [Value(t) for t in extra]
    inner = Block((*function.parameters, *data), function.instructions, function.results)
    b = Builder()
    parameters = [Value(v.type) for v in inner.parameters]
    places = tuple(range(count, count + len(extra)))
    params = {"wrt": tuple(wrt), "results": (0,), "tangents" if name == "jvp" else "seeds": places}
    return b.function("f", parameters, b.emit(OPS[name], parameters, params, [inner]))


def test_tangents_of_zero_are_no_instructions() -> None:
    """Values that no tangent reaches are not computed twice, and a linear op stays one instruction."""
    t = ArrayType(F64, (3,))
    b = Builder()
    x, y, _ = parameters = [Value(t) for _ in range(3)]
    inner = b.block(parameters, [b.add(b.transpose(b.exp(x), perm=(0,)), b.sin(y))])
    b = Builder()
    outer = [Value(t) for _ in range(3)]
    built = b.emit(OPS["jvp"], outer, {"wrt": (1,), "tangents": (2,), "results": (0,)}, [inner])
    function = grad(b.function("f", outer, built[1:]))
    names = [i.op.name for i in walk(function.body) if i.loc.note.startswith("jvp")]
    assert names == ["cos", "mul"]
