"""Linear algebra on the stand-in device, by kernels of ours and by the stand-ins of cuBLAS and cuSOLVER, against the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import pullback as pb
from pullback.codegen.cuda.source.launch import Operand, Routine
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.cache.entry_format import Entry
from pullback.runtime.choices import choices
from pullback.runtime.cuda.device import device as cuda_device
from pullback.runtime.cuda.libraries import calls as cuda_calls
from pullback.runtime.cuda.libraries import libraries as cuda_libraries
from pullback.runtime.cuda.libraries import tuning as cuda_tuning
from pullback.runtime.cuda.libraries.calls import sized_routine
from pullback.runtime.cuda.libraries.routines import RECORDS
from pullback.runtime.cuda.program import serialize as cuda_serialize
from pullback.tracer import flatten
from tests.runtime.cuda.test_programs import both
from tests.runtime.cuda.test_user_programs import close
from tests.support.cuda.driver_stand_in import device, order
from tests.support.cuda.library_fixture import alone, library
from tests.support.cuda.library_stand_ins import Library, prototypes
from tests.tables.linalg_calls import NUMPY, SCIPY, SPECTRAL, positive, regular, spread, sym
from tests.tracer.functions.test_function_gradients import weighted

__all__ = ["alone", "device", "library", "order"]
Call = Callable[..., Any]


def complexes(*shape: int) -> Any:
    rng = np.random.default_rng(7)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def hermitian(a: Any) -> Any:
    return (a + np.conj(np.swapaxes(a, -1, -2))) / 2


def exponential(a: Any, triangle: str = "L") -> Any:
    values, vectors = np.linalg.eigh(a, triangle)
    return (vectors * np.exp(values)[..., None, :]) @ np.conj(np.swapaxes(vectors, -1, -2))


R5, R23, D4, D23, S4, TALL, WIDE = (
    regular(5),
    regular(2, 3),
    positive(4),
    positive(2, 3),
    spread(4, 4),
    spread(5, 3),
    spread(3, 5),
)
W5 = R5 + 5 * np.eye(5)
C4, C23 = complexes(4, 4) + 3 * np.eye(4), complexes(2, 3, 3) + 3 * np.eye(3)
BY_BLOCKS: dict[str, tuple[Call, list[Any]]] = {
    "cholesky": (lambda a: np.linalg.cholesky(sym(a)), [D4]),
    "cholesky of a batch": (lambda a: np.linalg.cholesky(sym(a)), [D23]),
    "cholesky of complex": (lambda a: np.linalg.cholesky(hermitian(a @ np.conj(a.T))), [C4]),
    "solve": (np.linalg.solve, [R5, np.arange(5.0)]),
    "solve of a batch": (np.linalg.solve, [R23, np.ones((2, 3, 2))]),
    "solve of complex": (np.linalg.solve, [C23, complexes(2, 3, 2)]),
    "det": (np.linalg.det, [regular(2, 4)]),
    "slogdet of complex": (lambda a: np.linalg.slogdet(a)[1], [C4]),
    "inv": (np.linalg.inv, [R23]),
    "qr": (lambda a: tuple(np.linalg.qr(a)), [TALL]),
    "qr of a batch": (lambda a: tuple(np.linalg.qr(a)), [spread(2, 4, 3)]),
    "qr of complex": (lambda a: tuple(np.linalg.qr(a)), [C23]),
    "qr, whole": (lambda a: np.linalg.qr(a, "complete")[1], [TALL]),
    "triangles": (lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True), [W5, np.ones((5, 3))]),
    "triangles, transposed": (lambda a, b: scipy.linalg.solve_triangular(a, b, trans=1, unit_diagonal=True), [W5, np.ones(5)]),
    "eigh, whatever the signs": (lambda a: exponential(sym(a)), [S4]),
    "eigh of a batch, whatever the signs": (lambda a: exponential(sym(a), "U"), [regular(2, 3)]),
    "eigh of complex, whatever the phases": (lambda a: exponential(hermitian(a)).real, [C23]),
    "expm": (scipy.linalg.expm, [R5]),
    "expm of a batch": (scipy.linalg.expm, [R23]),
}
BY_LIBRARIES: dict[str, tuple[Call, list[Any]]] = {
    "eigh": (lambda a: tuple(np.linalg.eigh(sym(a))), [S4]),
    "eigh of a batch": (lambda a: tuple(np.linalg.eigh(sym(a), "U")), [D23]),
    "eigvalsh of complex": (lambda a: np.linalg.eigvalsh(hermitian(a)), [C23]),
    "svd": (lambda a: tuple(np.linalg.svd(a, full_matrices=False)), [TALL]),
    "svd of wide ones": (lambda a: tuple(np.linalg.svd(a, full_matrices=False)), [WIDE]),
    "svd, full": (lambda a: np.linalg.svd(a)[1], [TALL]),
    "svd of a batch": (lambda a: np.linalg.svd(a, full_matrices=False)[1], [spread(2, 3, 4)]),
    "svd of complex": (lambda a: np.linalg.svd(a, full_matrices=False)[1], [C23]),
    "pinv": (np.linalg.pinv, [TALL]),
}
ALL = {**BY_BLOCKS, **BY_LIBRARIES}


def with_gradient(call: Call, count: int) -> Call:
    return lambda *xs: (call(*xs), pb.grad(weighted(call), argnums=tuple(range(count)))(*xs))


@pytest.fixture
def on_device() -> Iterator[None]:
    """Nothing is done by the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pb.DeviceWarning)
        yield


@pytest.mark.parametrize("name", BY_BLOCKS)
def test_blocks(alone: None, on_device: None, order: None, name: str) -> None:
    call, arguments = BY_BLOCKS[name]
    both(with_gradient(call, len(arguments)), *arguments)


@pytest.mark.parametrize("name", ALL)
def test_libraries(library: Library, on_device: None, name: str) -> None:
    call, arguments = ALL[name]
    both(with_gradient(call, len(arguments)), *arguments)
    assert (library.calls or name == "expm of a batch") and not any(name.endswith("failed") for name, _ in library.calls)


@pytest.mark.parametrize("call", [np.linalg.solve, lambda a, b: np.linalg.cholesky(a @ a.T), lambda a, b: np.linalg.qr(a)[1]])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision(library: Library, on_device: None, call: Call, dtype: Any) -> None:
    a, b = (x.astype(dtype) for x in (regular(4), np.ones((4, 2))))
    result, wanted = np.asarray(pb.jit(call, device="cuda")(a, b)), np.asarray(pb.jit(call)(a, b))
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    letter = "S" if dtype is np.float32 else "C"
    assert any(f"Dn{letter}" in name or f"cublas{letter}" in name for name in library._made)


def alike(call: Call, *arguments: Any) -> None:
    """A call gives on the device what it does on the CPU; some results are constants."""
    wanted, result = (flatten(pb.jit(call, device=device)(*arguments))[0] for device in ("cpu", "cuda"))
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(result, wanted, strict=True)]
    if "eigh" in call.__code__.co_names:
        pairs = [(with_phases_of(other, one), other) for one, other in pairs]
    close([one for one, _ in pairs], [other for _, other in pairs])


def with_phases_of(wanted: Any, result: Any) -> Any:
    """Eigenvectors with the signs, or phases, of others, since any do; what has no unit vectors for columns as it is."""
    if wanted.ndim < 2 or not np.allclose(np.linalg.norm(wanted, axis=-2), 1):
        return result
    phases = np.sum(np.conj(result) * wanted, axis=-2, keepdims=True)
    np.testing.assert_allclose(np.abs(phases), 1, rtol=1e-4)
    return (result * (phases / np.abs(phases))).astype(result.dtype)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize(("call", "arguments"), [*NUMPY, *SCIPY, *SPECTRAL])
def test_all_calls_by_blocks(alone: None, call: Call, arguments: list[Any]) -> None:
    alike(call, *arguments)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize(("call", "arguments"), [*NUMPY, *SCIPY, *SPECTRAL])
def test_all_calls_by_libraries(library: Library, call: Call, arguments: list[Any]) -> None:
    alike(call, *arguments)


def test_many_small_systems_stay_on_the_device(alone: None, on_device: None) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(300, 6, 6)) + 6 * np.eye(6), rng.normal(size=(300, 6))

    def loss(a: Any, b: Any) -> Any:
        return np.sum(np.linalg.solve(a, b[..., None]) ** 2)

    step = pb.jit(pb.value_and_grad(loss, argnums=(0, 1)))
    value, gradients = step(pb.device_put(a), pb.device_put(b))
    wanted, expected = step(a, b)
    np.testing.assert_allclose(float(value), wanted, rtol=1e-11)
    for result, one in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(result), one, rtol=1e-9, atol=1e-12)
    assert not step.explain(pb.device_put(a), pb.device_put(b)).on_cpu


# errors


SINGULAR, INDEFINITE = np.ones((4, 4)), -np.eye(4)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (np.linalg.inv, SINGULAR), (np.linalg.inv, np.stack([np.eye(4), SINGULAR])), (np.linalg.cholesky, INDEFINITE),
        (lambda a: np.linalg.solve(a, a), SINGULAR), (np.linalg.cholesky, np.stack([np.eye(4), INDEFINITE])),
        (lambda a: np.linalg.solve(a, a), SINGULAR + 0j), (np.linalg.cholesky, INDEFINITE + 0j),
    ],
)  # fmt: skip
def test_errors_by_blocks(alone: None, call: Call, argument: Any) -> None:
    fails_alike(call, argument)


@pytest.mark.parametrize(("call", "argument"), [(np.linalg.inv, SINGULAR), (np.linalg.cholesky, INDEFINITE)])
def test_errors_by_libraries(library: Library, call: Call, argument: Any) -> None:
    fails_alike(call, argument)
    assert library.calls


def fails_alike(function: Call, argument: Any) -> None:
    def call(a: Any) -> Any:
        return function(a)

    with pytest.raises(np.linalg.LinAlgError) as wanted:
        pb.jit(call)(argument)
    with pytest.raises(np.linalg.LinAlgError) as result:
        pb.jit(call, device="cuda")(argument)
    assert str(result.value).splitlines()[0] == str(wanted.value).splitlines()[0]
    assert all("test_linalg.py" in note for each in (result, wanted) for note in each.value.__notes__)
    np.testing.assert_allclose(pb.jit(call, device="cuda")(np.eye(4)), call(np.eye(4)))


def test_matrices_too_large_for_a_block_are_the_cpus(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_calls, "MAX_ORDER", 4)
    f = pb.jit(lambda a: np.linalg.inv(a), device="cuda")
    np.testing.assert_allclose(f(R5[:4, :4]), np.linalg.inv(R5[:4, :4]), rtol=1e-10)
    assert not f.explain(R5[:4, :4]).on_cpu
    with pytest.warns(pb.DeviceWarning, match="too large for one block, without a library; the CPU does it"):
        result = f(R5)
    np.testing.assert_allclose(result, np.linalg.inv(R5), rtol=1e-10)
    assert any("too large" in what for what in f.explain(R5).on_cpu)


def test_what_only_a_library_does_is_the_cpus_without_it(alone: None) -> None:
    f = pb.jit(lambda a: np.linalg.svd(a)[1], device="cuda")
    with pytest.warns(pb.DeviceWarning, match="gesdd .*the CPU does it"):
        result = f(S4)
    np.testing.assert_allclose(result, np.linalg.svd(S4)[1], atol=1e-12)


def test_a_function_that_is_missing(library: Library) -> None:
    library.missing |= {"cusolverDnDgesvdj", "cusolverDnDpotrf"}
    with pytest.warns(pb.DeviceWarning, match="gesdd"):
        result = pb.jit(lambda a: np.linalg.svd(a)[1] + 1, device="cuda")(S4)
    np.testing.assert_allclose(result, np.linalg.svd(S4)[1] + 1, atol=1e-12)
    np.testing.assert_allclose(pb.jit(lambda a: np.linalg.cholesky(a), device="cuda")(D4), np.linalg.cholesky(D4))
    assert not library.calls


def test_a_function_that_fails(library: Library) -> None:
    library.failing["cusolverDnDpotrf"] = 6
    f = pb.jit(lambda a: np.linalg.cholesky(a), device="cuda")
    with pytest.raises(pb.DeviceError, match=r"cuSOLVER could not do cusolverDnDpotrf \(its error 6: a failed execution\)"):
        f(D4)
    library.failing.clear()
    np.testing.assert_allclose(f(D4), np.linalg.cholesky(D4))


def test_a_library_that_does_not_start(library: Library, on_device: None) -> None:
    library.failing["cusolverDnCreate"] = 1
    np.testing.assert_allclose(pb.jit(lambda a: np.linalg.cholesky(a), device="cuda")(D4), np.linalg.cholesky(D4))
    assert not library.calls


# what is called


@pytest.mark.parametrize("name", RECORDS)
def test_every_function_that_is_called_has_a_prototype_for_each_letter(name: str) -> None:
    known = prototypes()
    params = {
        "lower": True, "transposed": False, "unit_diagonal": False, "full": False, "transpose_a": False, "transpose_b": True,
        "complex": True, "numbers": (0, 0),
    }  # fmt: skip
    for step in RECORDS[name].all_steps:
        for letter in "SDCZ":
            _, _, types = known[step.name(letter)]
            sizes = int(step is RECORDS[name].query)
            assert len(types) == 1 + len(step.arguments(params)) + sizes


@pytest.mark.parametrize("tapes", [True, False])
def test_steps_follow_each_other(library: Library, order: None, tapes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pullback.runtime.cuda.program.executable.CudaExecutable.uses_plans", tapes)
    f = pb.jit(lambda a, b: np.linalg.solve(a * 2, np.linalg.cholesky(b + np.eye(4))) @ a)
    placed = pb.device_put((S4, D4))
    for _ in range(4):
        np.testing.assert_allclose(np.asarray(f(*placed)), np.asarray(f(S4, D4)), rtol=1e-10)


def test_programs_that_call_libraries_are_kept(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[cuda_serialize.Parts] = []
    monkeypatch.setattr(cuda_serialize, "keep", lambda key, parts, arch, seconds: kept.append(parts))
    pb.jit(lambda a: np.linalg.eigh(sym(a))[0] + np.linalg.slogdet(a)[1], device="cuda")(S4)
    for parts in kept:
        data = cuda_serialize.encoded(parts)
        assert data is not None
        again = cuda_serialize.decoded(data)
        assert again.kernels == parts.kernels and set(again.plain) == set(parts.plain)


def test_sizes_of_a_routine() -> None:
    operands = (Operand(position=2, shape=("s0", "s0"), is_batched=True), Operand(position=0, shape=(), is_batched=True))
    routine = Routine(name="potrf", dtype="f32", is_complex=True, params=(), operands=operands, batch=("s1", 3))
    call = sized_routine(routine, {"s0": 5, "s1": 2})
    assert (call.shapes, call.batch, call.order, call.letter) == (((5, 5), ()), 6, 5, "C")
    assert (call.step(0), call.step(1)) == (5 * 5 * 8, 4)


# which libraries there are


def test_versions(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, path: str) -> None:
            self.version = path.split(":")

        def __getitem__(self, name: str) -> Any:
            if self.version[0] == "other":
                raise AttributeError(name)

            def ask(which: int, result: Any) -> int:
                result._obj.value = int(self.version[which])
                return 0

            return ask

    monkeypatch.setattr(cuda_libraries.ctypes, "CDLL", Fake)
    known = {
        "12.1.0": ["other", "12:1:0"],
        "10:2:1 is version 10.2.1, and 11 or 12 is needed: large matrices": ["10:2:1"],
        "11.7.5": ["13:0:0", "11:7:5"],
        "none: large matrices are factored by the CPU, on copies (pip install nvidia-cusolver": [],
    }
    for said, paths in known.items():
        cuda_libraries.find.cache_clear()
        monkeypatch.setattr(cuda_libraries.toolkit, "libraries", lambda name: iter(paths))  # noqa: B023
        result = cuda_libraries.find("cusolver")
        assert (result if isinstance(result, str) else result.version).startswith(said)
    cuda_libraries.find.cache_clear()


# which of both


def test_the_choice_is_measured_once(
    library: Library, device: cuda_device.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    cache = KernelCache(tmp_path / "cache")
    built = choices.Choices(lambda: cache, {})
    monkeypatch.setattr(cuda_calls, "choices", built)
    times = iter([2e-6, 1e-6])
    ran: list[float] = []

    def timed(device: Any, work: Callable[[Any], None], captures: bool = True) -> float:
        work(device.stream)
        ran.append(next(times))
        return ran[-1]

    monkeypatch.setattr(cuda_tuning, "timed", timed)
    f = pb.jit(lambda a: np.linalg.cholesky(a) * 2, device="cuda")
    np.testing.assert_allclose(f(D4), 2 * np.linalg.cholesky(D4))
    assert len(ran) == 2 and any(name == "cusolverDnpotrf" for name, _ in library.calls)
    (choice,) = built.in_memory()
    assert (choice.key.subject, choice.chosen, choice.how) == ("potrf", "library", "measured")
    np.testing.assert_allclose(pb.jit(lambda a: np.linalg.cholesky(a) * 3, device="cuda")(D4), 3 * np.linalg.cholesky(D4))
    assert len(ran) == 2
    entry: Entry
    (entry,) = [e for e in cache.entries() if e.kind == "choice"]
    assert entry.meta["chosen"] == "library" and "potrf, f64, 4x4 1" in entry.meta["of"]
    assert any("potrf" in line and "library" in line for line in f.explain(D4).choices)


@pytest.mark.long
def test_a_batch_that_a_block_does_in_one_piece_may_be_too_large(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_calls, "MAX_ORDER", 2)
    with pytest.warns(pb.DeviceWarning, match="linear algebra of matrices that are too large for one block"):
        result = pb.jit(lambda a: scipy.linalg.expm(a) + 1, device="cuda")(R23)
    np.testing.assert_allclose(result, scipy.linalg.expm(R23) + 1, rtol=1e-9)
