"""A noisy picture is smoothed with its edges kept: total variation, in float32."""

import numpy as np

import pullback as pb


def total_variation(u, eps=1e-3):
    dy = np.zeros_like(u)
    dx = np.zeros_like(u)
    dy[:-1] = np.diff(u, axis=0)
    dx[:, :-1] = np.diff(u, axis=1)
    return np.sqrt(dy**2 + dx**2 + eps**2).sum()


def objective(u, noisy, weight):
    return 0.5 * np.sum(np.square(u - noisy)) + weight * total_variation(u)


def picture(n=64, seed=0):
    y, x = np.mgrid[:n, :n] / n
    clean = 0.2 + 0.6 * ((x - 0.5) ** 2 + (y - 0.45) ** 2 < 0.08) + 0.3 * (np.abs(x - y) < 0.07)
    noisy = clean + 0.15 * np.random.default_rng(seed).standard_normal((n, n))
    return clean.astype(np.float32), noisy.astype(np.float32)


def psnr(u, clean):
    return -10 * np.log10(np.mean((u - clean) ** 2))


def main():
    clean, noisy = picture()
    value_and_grad = pb.value_and_grad(objective)
    u, momentum = noisy.copy(), np.zeros_like(noisy)
    for step in range(200):
        value, g = value_and_grad(u, noisy, np.float32(0.15))
        momentum *= np.float32(0.9)
        momentum -= np.float32(0.01) * g
        u += momentum
        if step % 50 == 49:
            print(f"step {step + 1:3d}  objective {value:9.3f}  PSNR {psnr(u, clean):.2f} dB")
    assert u.dtype == g.dtype == np.float32
    print(f"noisy {psnr(noisy, clean):.2f} dB, smoothed {psnr(u, clean):.2f} dB")


if __name__ == "__main__":
    main()
