"""A planar arm of five joints reaches a point around an obstacle."""

import numpy as np

import pullback as pb

LENGTHS = [1.0, 0.8, 0.7, 0.5, 0.3]
OBSTACLE = np.array([1.0, 0.9])
RADIUS = 0.35


def rotation(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def joints(angles):
    """Positions of all joints, the base first."""
    R = np.eye(2)
    points = [np.zeros(2)]
    for angle, length in zip(angles, LENGTHS):
        R = R @ rotation(angle)
        points.append(points[-1] + R @ np.array([length, 0.0]))
    return np.array(points)


def cost(angles, target):
    p = joints(angles)
    miss = np.sum((p[-1] - target) ** 2)
    distance = np.linalg.norm(p[1:] - OBSTACLE, axis=1)
    collision = np.sum(np.clip(RADIUS - distance, 0, None) ** 2)
    return miss + 10 * collision + 1e-3 * np.sum(angles**2)


def main():
    target = np.array([1.6, 1.5])
    angles = np.full(5, 0.1)
    slope = pb.jit(pb.value_and_grad(cost))
    velocity = np.zeros_like(angles)
    for step in range(301):
        value, g = slope(angles, target)
        velocity = 0.9 * velocity - 0.02 * g
        angles = angles + velocity
        if step % 100 == 0:
            print(f"step {step:3d}  cost {value:.5f}  hand at {joints(angles)[-1].round(3)}")
    nearest = np.linalg.norm(joints(angles)[1:] - OBSTACLE, axis=1).min()
    print(f"angles {np.rad2deg(angles).round(1)}, nearest joint {nearest:.3f} from the obstacle")


if __name__ == "__main__":
    main()
