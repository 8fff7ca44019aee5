"""scipy.signal by Fourier transforms: convolutions, analytic signals, resampling, spectra of segments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.signal

import pullback as pb
from tests.support.agreement import agrees, gradients_agree
from tests.support.versions import since

Call = Callable[..., Any]
signal = scipy.signal
RNG = np.random.default_rng(2)
X = RNG.normal(size=70)
Y = RNG.normal(size=(3, 66))
Z = X + 1j * RNG.normal(size=70)
WINDOW = RNG.uniform(0.3, 1.0, 16)
LONG, KERNEL = RNG.normal(size=3000), RNG.normal(size=300)

CONVOLUTIONS: list[tuple[Call, Any, Any]] = [
    *((lambda x, y, m=m: signal.fftconvolve(x, y, m), X, WINDOW) for m in ("full", "same", "valid")),
    *((lambda x, y, m=m: signal.oaconvolve(x, y, m), X, WINDOW) for m in ("full", "same", "valid")),
    *((lambda x, y, m=m: signal.fftconvolve(y, x, m), X, WINDOW) for m in ("full", "same", "valid")),
    *((lambda x, y, m=m: signal.fftconvolve(x, y[:, :9], m), Y, Y) for m in ("full", "same", "valid")),
    *((lambda x, y, m=m: signal.fftconvolve(x, y[:, :9], m, axes=1), Y, Y) for m in ("full", "same", "valid")),
    (lambda x, y: signal.fftconvolve(x, y[None, :], axes=-1), Y, WINDOW),
    (lambda x, y: signal.fftconvolve(x, y[:1, :7]), Y, Y),
    (lambda x, y: signal.fftconvolve(x, y), Z, WINDOW),
    *((lambda x, y, m=m: signal.convolve(x, y, m, "fft"), X, WINDOW) for m in ("full", "same", "valid")),
    (lambda x, y: signal.correlate(x, y, "same", "fft"), X, WINDOW),
    (lambda x, y: signal.correlate(x, y), Z, Z[:9]),
    (lambda x, y: signal.correlate(x, y, method="fft"), Z, Z[:9]),
    (lambda x, y: signal.convolve(x, y), LONG, KERNEL),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(CONVOLUTIONS)))
def test_convolutions(k: int) -> None:
    call, *arguments = CONVOLUTIONS[k]
    agrees(call, *arguments, rtol=0, atol=1e-12)
    if arguments[0].dtype == float and arguments[0] is not LONG:
        gradients_agree(call, *arguments)


def test_whole_numbers_and_precisions_of_convolutions() -> None:
    i, j = np.arange(9), np.arange(4)
    for call in (lambda a, b: signal.convolve(a, b, method="fft"), signal.fftconvolve):
        agrees(call, i, j, rtol=0, atol=1e-12)
        agrees(call, X.astype(np.float32), WINDOW.astype(np.float32), rtol=0, atol=1e-5)
    assert pb.jit(signal.fftconvolve)(X[:0], X).shape == (0,)


@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
@pytest.mark.parametrize("function", [signal.convolve2d, signal.correlate2d], ids=lambda f: f.__name__)
def test_planes(function: Call, boundary: str) -> None:
    for n, m in (((5, 6), (2, 3)), ((3, 4), (4, 3)), ((4, 4), (1, 2)), ((2, 3), (5, 4))):
        a, b = RNG.normal(size=n), RNG.normal(size=m)
        for mode in ("full", "same") if n == (3, 4) else ("full", "same", "valid"):
            agrees(lambda x, y, m=mode: function(x, y, m, boundary, 1.5), a, b, rtol=0, atol=1e-12)
    gradients_agree(lambda x, y: function(x, y, "same", boundary), a, b)
    agrees(lambda x: function(x, x), np.outer(Z[:3], Z[3:5]), rtol=0, atol=1e-12)


CALLS: list[tuple[Call, Any]] = [
    (lambda x: signal.hilbert(x), X),
    (lambda x: signal.hilbert(x, 64, 0), X),
    (lambda x: np.abs(signal.hilbert(x, axis=0)), Y),
    (lambda x: signal.hilbert(x, 9), Y),
    *since(scipy, "1.17.0", (lambda x: signal.hilbert2(x), Y), (lambda x: signal.hilbert2(x, (4, 7)), Y)),
    *((lambda x, n=n: signal.resample(x, n), X) for n in (35, 36, 70, 100, 141)),
    *((lambda x, n=n: signal.resample(x, n), Z) for n in (35, 36, 70, 100, 141)),
    (lambda x: signal.resample(x, 20, axis=1, window=("kaiser", 3.0)), Y),
    (lambda x: signal.resample(x, 20, np.arange(70) * 0.5), X),
    (lambda x: signal.periodogram(x), X),
    (lambda x: signal.periodogram(x, 10.0, "hann", 128, "linear", scaling="spectrum"), X),
    (lambda x: signal.periodogram(x, nfft=40, detrend=False, return_onesided=False), X),
    (lambda x: signal.periodogram(x, axis=0), Y),
    (lambda x: signal.periodogram(x), Z),
    (lambda x: signal.welch(x, nperseg=16), X),
    (lambda x: signal.welch(x, 4.0, ("tukey", 0.3), 17, 9, 32, "linear", scaling="spectrum"), X),
    (lambda x: signal.welch(x, nperseg=16, average="median"), X),
    (lambda x: signal.welch(x, nperseg=16, detrend=False, axis=1), Y),
    (lambda x: signal.welch(x.T, nperseg=16, axis=0), Y),
    (lambda x: signal.welch(x, window=WINDOW), X),
    (lambda x: signal.welch(x, window=x[:16]), X),
    (lambda x: signal.welch(x, nperseg=20), Z),
    (lambda x: signal.welch(x, nperseg=20, detrend=lambda d: d - d[..., :1]), X),
    (lambda x: signal.csd(x, x[::-1], nperseg=16), X),
    (lambda x: signal.csd(x, x[:50] ** 2, nperseg=16, average="median"), X),
    (lambda x: signal.csd(x, x[:1] + 1.0, nperseg=16), Y),
    (lambda x: signal.coherence(x, np.cumsum(x), nperseg=16), X),
    (lambda x: signal.spectrogram(x, nperseg=16), X),
    *((lambda x, m=m: signal.spectrogram(x, 2.0, nperseg=16, mode=m), X) for m in ("complex", "magnitude", "angle", "phase")),
    (lambda x: signal.spectrogram(x, nperseg=16, axis=0, noverlap=4), Y.T),
    *((lambda x, b=b: signal.stft(x, 3.0, nperseg=16, boundary=b), X) for b in ("zeros", "even", "odd", "constant", None)),
    (lambda x: signal.stft(x, nperseg=17, noverlap=11, nfft=20, padded=False, scaling="psd"), X),
    (lambda x: signal.stft(x, nperseg=16, return_onesided=False), Z),
    (lambda x: signal.stft(x, nperseg=16, axis=0, detrend="linear"), Y.T),
    (lambda x: signal.istft(signal.stft(x, nperseg=16)[2], nperseg=16), X),
    (lambda x: signal.istft(signal.stft(x, 2.0, nperseg=15, noverlap=9)[2] * 2, 2.0, nperseg=15, noverlap=9, scaling="psd"), X),
    (lambda x: signal.istft(signal.stft(x, nperseg=16, boundary=None)[2], boundary=False), X),
    (lambda x: signal.istft(signal.stft(x, nperseg=16, return_onesided=False)[2], input_onesided=False), Z),
    (lambda x: signal.istft(np.moveaxis(signal.stft(x, nperseg=16)[2], -1, 0), time_axis=0, freq_axis=-1), Y),
    (lambda x: signal.istft(x[:, :18].reshape(2, 9, 3) + 0.5j), Y),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", range(len(CALLS)))
def test_transforms_of_signals(k: int) -> None:
    call, x = CALLS[k]
    agrees(call, x, rtol=0, atol=1e-13)


DIFFERENTIATED = [k for k, (_, x) in enumerate(CALLS) if x.dtype == float and k % 2 == 0]


def real_parts(call: Call) -> Call:
    def parts(x: Any) -> list[Any]:
        result = call(x)
        leaves = list(result) if isinstance(result, tuple) else [result]
        return [p for leaf in leaves for p in ([leaf.real, leaf.imag] if np.iscomplexobj(leaf) else [leaf]) if np.ndim(p)]

    return parts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", DIFFERENTIATED)
def test_gradients(k: int) -> None:
    call, x = CALLS[k]
    gradients_agree(real_parts(call), x, tolerance=1e-5)


def test_precision_is_kept() -> None:
    x = X.astype(np.float32)
    for call in (lambda v: signal.stft(v, nperseg=16)[2], lambda v: signal.welch(v, nperseg=16)[1], signal.hilbert):
        agrees(call, x, rtol=0, atol=1e-5)


def test_the_rate_may_be_an_argument() -> None:
    def f(x: Any, rate: float) -> Any:
        frequencies, power = signal.welch(x, rate, nperseg=16)
        return np.sum(frequencies * power) / np.sum(power)

    agrees(f, X, 5.0)
    gradients_agree(f, X, np.float64(5.0))


REFUSED: list[tuple[Call, Any, type[Exception]]] = [
    (lambda x: signal.fftconvolve(x, Y), X, ValueError),
    (lambda x: signal.fftconvolve(x, X, "some"), X, ValueError),
    (lambda x: signal.fftconvolve(x, x[:2], axes=1), Y, ValueError),
    (lambda x: signal.fftconvolve(x, x, axes=[]), Y, ValueError),
    (lambda x: signal.convolve(x, x, method="some"), X, ValueError),
    (lambda x: signal.convolve2d(x, x[:2, :40].T, "valid"), Y, ValueError),
    (lambda x: signal.correlate2d(x, x[0]), Y, ValueError),
    (lambda x: signal.convolve2d(x, x, boundary="some"), Y, ValueError),
    (lambda x: signal.convolve2d(x, x, "some"), Y, ValueError),
    (lambda x: signal.hilbert(x), Z, ValueError),
    (lambda x: signal.hilbert(x, 0), X, ValueError),
    (lambda x: signal.welch(x, nperseg=8, noverlap=8), X, ValueError),
    (lambda x: signal.welch(x, nperseg=8, nfft=4), X, ValueError),
    (lambda x: signal.welch(x, nperseg=0), X, ValueError),
    (lambda x: signal.welch(x, nperseg=8, scaling="some"), X, ValueError),
    (lambda x: signal.welch(x, nperseg=8, average="some"), X, ValueError),
    (lambda x: signal.csd(x, np.ones((2, 66)), nperseg=8), Y, ValueError),
    (lambda x: signal.spectrogram(x, mode="some"), X, ValueError),
    (lambda x: signal.stft(x, nperseg=16, boundary="some"), X, ValueError),
    (lambda x: signal.stft(x, window=np.ones(100)), X, ValueError),
    (lambda x: signal.istft(x), X, ValueError),
    (lambda x: signal.istft(x, nperseg=16, window=np.ones(3)), Y, ValueError),
    (lambda x: signal.resample(x, 10, domain="some"), X, ValueError),
]


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_what_is_refused_is_refused_alike(k: int) -> None:
    call, x, kind = REFUSED[k]
    for run in (call, pb.jit(call)):
        with pytest.raises(kind):
            run(x)
