"""A camera calibrated on pictures of a chessboard: reprojection error over intrinsics and poses."""

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

import pullback as pb


@dataclass
class Camera:
    focal: float = 800.0
    centre: np.ndarray = field(default_factory=lambda: np.array([320.0, 240.0]))
    distortion: np.ndarray = field(default_factory=lambda: np.zeros(2))


def rodrigues(r):
    """Rotation matrix of a rotation vector."""
    theta = np.linalg.norm(r)
    k = r / theta
    K = np.array([[0, -k[2], k[1]], [k[2], 0, -k[0]], [-k[1], k[0], 0]])
    return np.eye(3) + np.sin(theta) * K + (1 - np.cos(theta)) * K @ K


def project(camera, rotation, translation, points):
    p = points @ rodrigues(rotation).T + translation
    uv = p[:, :2] / p[:, 2:]
    r2 = np.sum(uv**2, axis=1, keepdims=True)
    k1, k2 = camera.distortion
    return camera.focal * uv * (1 + k1 * r2 + k2 * r2**2) + camera.centre


def reprojection_error(camera, poses, board, images):
    total = 0.0
    for pose, image in zip(poses, images):
        residual = project(camera, pose[:3], pose[3:], board) - image
        total += np.sum(residual**2)
    return total / (len(images) * len(board))


def scene(views=5, seed=0):
    rng = np.random.default_rng(seed)
    board = np.array([[x, y, 0] for x in range(7) for y in range(5)]) * 0.03 - [0.09, 0.06, 0]
    camera = Camera(850.0, np.array([315.0, 245.0]), np.array([-0.2, 0.05]))
    poses = np.hstack([rng.uniform(-0.5, 0.5, (views, 3)), rng.uniform([-0.05, -0.05, 0.4], [0.05, 0.05, 0.7], (views, 3))])
    images = [project(camera, p[:3], p[3:], board) + 0.2 * rng.normal(size=(35, 2)) for p in poses]
    return camera, poses, board, images


def main():
    truth, poses, board, images = scene()
    x0, unravel = pb.tree.ravel((Camera(), poses + 0.02))
    scale = np.abs(x0) + 0.1
    objective = pb.value_and_grad(lambda x: reprojection_error(*unravel(x * scale), board, images))
    fit = minimize(objective, x0 / scale, jac=True, method="BFGS", options={"maxiter": 400})
    camera, _ = unravel(fit.x * scale)
    print(f"rms error {np.sqrt(objective(x0 / scale)[0]):.2f} -> {np.sqrt(fit.fun):.3f} pixels (noise 0.28)")
    print(f"focal {camera.focal:.1f} (true {truth.focal}), centre {camera.centre.round(1)}, k {camera.distortion.round(3)}")


if __name__ == "__main__":
    main()
