"""A blurred picture is made sharp again: the blur by scipy.signal, ridge on the second differences."""

import numpy as np
from scipy.optimize import minimize
from scipy.signal import convolve2d

import pullback as pb

laplace = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]])


def kernel(width):
    t = np.arange(-3, 4)
    k = np.exp(-0.5 * (t / width) ** 2)
    k /= k.sum()
    return np.outer(k, k)


def misfit(flat, blurred, psf, alpha):
    image = flat.reshape(blurred.shape)
    residual = convolve2d(image, psf, mode="same") - blurred
    rough = convolve2d(image, laplace, mode="valid")
    return np.sum(residual**2) + alpha * np.sum(rough**2)


def scene(n=40, seed=0):
    rng = np.random.default_rng(seed)
    sharp = np.zeros((n, n))
    for _ in range(8):
        r, c, h, w = rng.integers([4, 4, 4, 4], [n - 14, n - 14, 10, 10])
        sharp[r : r + h, c : c + w] += rng.uniform(0.3, 1)
    blurred = convolve2d(sharp, kernel(1.4), mode="same") + 0.005 * rng.normal(size=(n, n))
    return sharp, blurred


def main():
    sharp, blurred = scene()
    objective = pb.value_and_grad(misfit)
    for alpha in 1e-1, 1e-2, 1e-3:
        args = (blurred, kernel(1.4), alpha)
        fit = minimize(objective, blurred.ravel(), args=args, jac=True, method="L-BFGS-B", options={"maxiter": 100})
        error = np.sqrt(np.mean((fit.x.reshape(sharp.shape) - sharp) ** 2))
        print(f"alpha {alpha:.0e}: rms error {error:.4f} (blurred {np.sqrt(np.mean((blurred - sharp) ** 2)):.4f})")


if __name__ == "__main__":
    main()
