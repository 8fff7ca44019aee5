"""Fourier transforms of np.fft and scipy.fft: NumPy's and SciPy's values, dtypes and errors; gradients of two orders."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft

import pullback as pb

Call = Callable[..., Any]
RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 4, 5))
Z = X + 1j * RNG.normal(size=X.shape)
EVEN, ODD = RNG.normal(size=6), RNG.normal(size=7)
sf = scipy.fft


def close(result: Any, wanted: Any) -> None:
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    single = wanted.dtype in (np.float32, np.complex64)
    scale = np.max(np.abs(wanted), initial=1.0)
    np.testing.assert_allclose(result, wanted, rtol=0, atol=float(scale) * (3e-6 if single else 3e-15))


# values

NUMPY: list[tuple[Call, Any]] = [
    *((lambda v, f=f: f(v), a) for f in (np.fft.fft, np.fft.ifft) for a in (X, Z, EVEN, ODD)),
    *((lambda v, f=f: f(v), a) for f in (np.fft.irfft, np.fft.hfft) for a in (X, Z, EVEN)),
    *((lambda v, f=f: f(v), a) for f in (np.fft.rfft, np.fft.ihfft) for a in (X, EVEN, ODD)),
    *((lambda v, f=f, k=k: f(v, axis=k), Z) for f in (np.fft.fft, np.fft.irfft) for k in (0, 1, -2)),
    *((lambda v, k=k: np.fft.rfft(v, axis=k), X) for k in (0, 1, -2)),
    *((lambda v, f=f, n=n: f(v, n, 1), Z) for f in (np.fft.fft, np.fft.ifft, np.fft.irfft, np.fft.hfft) for n in (1, 2, 3, 9)),
    *((lambda v, f=f, n=n: f(v, n, 0), X) for f in (np.fft.rfft, np.fft.ihfft) for n in (1, 2, 5, 6)),
    *(
        (lambda v, f=f, m=m: f(v, norm=m), Z)
        for f in (np.fft.fft, np.fft.ifft, np.fft.irfft, np.fft.hfft, np.fft.fftn, np.fft.irfftn)
        for m in ("ortho", "forward", "backward")
    ),
    *((lambda v, f=f, m=m: f(v, norm=m), X) for f in (np.fft.rfft, np.fft.ihfft, np.fft.rfftn) for m in ("ortho", "forward")),
    *((lambda v, f=f: f(v), Z) for f in (np.fft.fft2, np.fft.ifft2, np.fft.fftn, np.fft.ifftn, np.fft.irfft2, np.fft.irfftn)),
    *((lambda v, f=f: f(v), X) for f in (np.fft.fft2, np.fft.rfft2, np.fft.rfftn)),
    *((lambda v, f=f: f(v, (3, 7), (0, 2)), X) for f in (np.fft.fftn, np.fft.rfftn, np.fft.irfftn, np.fft.fft2)),
    *((lambda v, f=f: f(v, axes=(2, 0)), X) for f in (np.fft.fftn, np.fft.rfftn, np.fft.irfft2)),
    (lambda v: np.fft.fftn(v, (-1, 2), (0, 1)), Z),
    (lambda v: np.fft.fftn(v, axes=(1, 1)), Z),
    *((lambda v, f=f, k=k: f(v, k), Z) for f in (np.fft.fftshift, np.fft.ifftshift) for k in (None, 1, (0, 2), -1)),
    (lambda v: np.fft.fft(v), X[:0]),
    (lambda v: np.fft.rfft(v, axis=0), X[:, :0]),
    (lambda v: np.fft.fft(v, 3), X[..., :0]),
    (lambda v: np.fft.fft(v.T[::2, ::-1]), Z),
    (lambda v: np.fft.fft(v), np.arange(6)),
    (lambda v: np.fft.rfft(v), np.arange(6) % 2 == 0),
    *((lambda v, f=f: f(v), X.astype(t)) for f in (np.fft.fft, np.fft.rfft, np.fft.irfft) for t in (np.float32, np.float16)),
    *((lambda v, f=f: f(v, norm="ortho"), Z.astype(np.complex64)) for f in (np.fft.fft, np.fft.ifft, np.fft.irfft)),
    (lambda v: np.fft.fft(v[0], out=np.zeros(v.shape[1:], complex)), X),
    (lambda v: np.fft.fftfreq(8, d=v[0, 0, 0]), X),
    (lambda v: np.fft.rfftfreq(7, v[0, 0, 0]), X),
    (lambda v: v[0, 0, 0] * np.fft.fftfreq(6), X),
]


@pytest.mark.parametrize("k", range(len(NUMPY)))
def test_numpys_transforms(k: int) -> None:
    call, a = NUMPY[k]
    close(pb.jit(call)(a), call(a))


def _scipys() -> list[tuple[Call, Any]]:
    result: list[tuple[Call, Any]] = []
    for name in ("fft", "ifft", "irfft", "hfft"):
        f, several, pair = getattr(sf, name), getattr(sf, f"{name}n"), getattr(sf, f"{name}2")
        result += [(lambda v, f=f: f(v), Z), (lambda v, f=f: f(v, 6, axis=1, norm="ortho"), Z), (lambda v, f=pair: f(v), Z)]
        result += [(lambda v, f=several: f(v, (4, 3), norm="forward"), Z), (lambda v, f=several: f(v, axes=(2, 0)), Z)]
    for name in ("rfft", "ihfft"):
        f, several, pair = getattr(sf, name), getattr(sf, f"{name}n"), getattr(sf, f"{name}2")
        result += [(lambda v, f=f: f(v), X), (lambda v, f=f: f(v, 6, axis=1, norm="ortho"), X), (lambda v, f=pair: f(v), X)]
        result += [(lambda v, f=several: f(v, (4, 3), norm="forward"), X), (lambda v, f=several: f(v, axes=(2, 0)), X)]
    for name in ("dct", "idct", "dst", "idst"):
        f, several = getattr(sf, name), getattr(sf, f"{name}n")
        for kind in (1, 2, 3, 4):
            result += [(lambda v, f=f, k=kind, m=norm: f(v, k, norm=m), X) for norm in (None, "ortho", "forward")]
            result.append((lambda v, f=f, k=kind: f(v, k, 6, 1, orthogonalize=True), X))
            result.append((lambda v, f=f, k=kind: f(v, k, 2, 0), Z))
            result.append((lambda v, f=several, k=kind: f(v, k), X))
        result.append((lambda v, f=several: f(v, s=(3, 5), axes=(2, 0), norm="ortho"), X))
        result.append((lambda v, f=f: f(v), X.astype(np.float32)))
        result.append((lambda v, f=f: f(v, axis=0), X[:1]))
    result += [
        (lambda v: sf.fftshift(v, 1), Z),
        (lambda v: sf.fftfreq(5, v[0, 0, 0]), X),
        (lambda v: sf.fft(v), X.astype(np.float16)),
    ]
    return result


SCIPY = _scipys()


@pytest.mark.parametrize("k", range(len(SCIPY)))
def test_scipys_transforms(k: int) -> None:
    call, a = SCIPY[k]
    wanted = call(a)
    result = pb.jit(call)(a)
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    scale = np.max(np.abs(wanted), initial=1.0)
    np.testing.assert_allclose(result, wanted, rtol=0, atol=scale * (3e-6 if wanted.real.dtype == np.float32 else 1e-14))


# gradients: of a real loss by z = x + iy, dL/dx - i dL/dy

DIFFERENTIATED: list[tuple[Call, Any]] = [
    *((lambda v, f=f, n=n: f(v, n), Z) for f in (np.fft.fft, np.fft.ifft) for n in (5, 3, 8)),
    *((lambda v, f=f, n=n, k=k: f(v, n, k), Z) for f in (np.fft.irfft, np.fft.hfft) for n in (4, 5, 9) for k in (1, 2)),
    *((lambda v, f=f, n=n, k=k: f(v, n, k), X) for f in (np.fft.rfft, np.fft.ihfft) for n in (4, 5, 9) for k in (0, 2)),
    (lambda v: np.fft.fft(v, axis=0), X),
    (lambda v: np.fft.fftn(v, norm="ortho"), Z),
    (lambda v: np.fft.rfftn(v), X),
    (lambda v: np.fft.irfftn(v, (4, 5), (0, 1)), Z),
    (lambda v: np.fft.fftshift(np.fft.fft2(v)), X),
    *((lambda v, f=f, k=k: f(v, k, norm="ortho"), X) for f in (sf.dct, sf.dst, sf.idct, sf.idst) for k in (1, 2, 3, 4)),
    (lambda v: sf.dctn(v, axes=(0, 1)), Z),
    (lambda v: sf.hfftn(v), Z),
]


def weights_of(result: Any) -> Any:
    return (1.0 + 0.5 * np.cos(1.3 * np.arange(result.size))).reshape(result.shape)


def loss_of(call: Call) -> Call:
    def loss(v: Any) -> Any:
        result = call(v)
        w = weights_of(result)
        return np.sum(w * np.sin(result.real)) + np.sum((w + 0.2 * w**2) * np.cos(0.7 * result.imag))

    return loss


@pytest.mark.parametrize("k", range(len(DIFFERENTIATED)))
def test_gradients_of_two_orders(k: int) -> None:
    call, a = DIFFERENTIATED[k]
    loss, rng, step = loss_of(call), np.random.default_rng(k), 1e-5
    directions = [rng.uniform(0.3, 1.5, a.shape) for _ in range(2)]
    if a.dtype == complex:
        directions = [d + 1j * rng.uniform(0.3, 1.5, a.shape) for d in directions]
    first, second = directions

    def slope(v: Any) -> Any:
        return np.sum((pb.grad(loss)(v) * first).real)

    gradient = pb.grad(loss)(a)
    assert (gradient.dtype, gradient.shape) == (a.dtype, a.shape)
    difference = (loss(a + step * first) - loss(a - step * first)) / (2 * step)
    np.testing.assert_allclose(np.sum((gradient * first).real), difference, rtol=1e-7, atol=1e-7)
    curvature = np.sum((pb.grad(slope)(a) * second).real)
    difference = (slope(a + step * second) - slope(a - step * second)) / (2 * step)
    np.testing.assert_allclose(curvature, difference, rtol=1e-6, atol=1e-6)


def test_a_template_serves_lengths_of_one_parity() -> None:
    @pb.jit
    @pb.grad
    def f(x: Any) -> Any:
        return np.sum(np.abs(np.fft.rfft(x)) ** 2 * np.arange(x.size // 2 + 1))

    for n in (6, 7, 8, 9, 64, 65, 1, 2):
        x = RNG.normal(size=n)
        weights = np.fft.rfft(np.eye(n))
        dense = 2 * np.real(np.conj(weights) @ (np.arange(n // 2 + 1) * np.fft.rfft(x)))
        np.testing.assert_allclose(f(x), dense, atol=1e-10 * n)


def test_results_written_into_an_array() -> None:
    def f(x: Any, out: Any) -> Any:
        result = np.fft.fft(x, out=out)
        return result[0] * 2, out

    a, b = np.zeros(6, complex), np.zeros(6, complex)
    wanted, result = f(EVEN, a), pb.jit(f)(EVEN, b)
    np.testing.assert_array_equal(b, a)
    assert result[0] == wanted[0]


REFUSED: list[tuple[Call, Any, type[Exception]]] = [
    (lambda v: np.fft.fft(v, 0), X, ValueError),
    (lambda v: np.fft.fft(v, -1), X, ValueError),
    (lambda v: np.fft.fft(v), X[..., :0], ValueError),
    (lambda v: np.fft.irfft(v), X[..., :1], ValueError),
    (lambda v: np.fft.fft(v, axis=3), X, IndexError),
    (lambda v: np.fft.fft(v[0, 0, 0]), X, IndexError),
    (lambda v: np.fft.fft2(v[0, 0]), X, IndexError),
    (lambda v: np.fft.fft(v, norm="x"), X, ValueError),
    (lambda v: np.fft.ifft(v, norm="x"), X, ValueError),
    (lambda v: np.fft.hfft(v, norm="x"), X, ValueError),
    (lambda v: np.fft.rfft(v), Z, TypeError),
    (lambda v: np.fft.fftn(v, (3,), (0, 1)), X, ValueError),
    (lambda v: np.fft.fft(v, out=np.zeros(3, complex)), X, ValueError),
    (lambda v: sf.fft(v, 0), X, ValueError),
    (lambda v: sf.fft(v, norm="x"), X, ValueError),
    (lambda v: sf.rfft(v), Z, TypeError),
    (lambda v: sf.fftn(v, axes=(0, 0)), X, ValueError),
    (lambda v: sf.fftn(v, (1, 2), (0,)), X, ValueError),
    (lambda v: sf.fftn(v, (1, 2, 3, 4)), X, ValueError),
    (lambda v: sf.rfftn(v, axes=()), X, ValueError),
    (lambda v: sf.dct(v, 5), X, ValueError),
    (lambda v: sf.dct(v, 1), X[..., :1], RuntimeError),
    (lambda v: sf.dct(v, n=0), X, ValueError),
    (lambda v: sf.dct(v, norm="x"), X, ValueError),
    (lambda v: sf.dctn(v, axes=(0, 0)), X, ValueError),
]


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_what_is_refused_is_refused_alike(k: int) -> None:
    call, a, kind = REFUSED[k]
    for run in (call, pb.jit(call)):
        with pytest.raises(kind):
            run(a)
