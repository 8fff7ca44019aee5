"""A four-parameter logistic curve through dose-response data, weighted, with doses down to zero."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def four_pl(dose, params):
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.where(dose > 0, dose / params["ec50"], 0.0)
        response = ratio ** params["hill"]
    return params["bottom"] + (params["top"] - params["bottom"]) * response / (1 + response)


def weighted_sse(p, dose, response):
    params = dict(zip(["bottom", "top", "ec50", "hill"], p))
    params["ec50"] = 10 ** params["ec50"]
    fitted = four_pl(dose, params)
    weights = 1 / np.maximum(np.abs(response), 1.0)
    return np.average((fitted - response) ** 2, weights=weights)


def assay(seed=0):
    rng = np.random.default_rng(seed)
    dose = np.repeat(np.concatenate([[0], np.logspace(-3, 2, 11)]), 6)
    truth = {"bottom": 2.0, "top": 98.0, "ec50": 0.35, "hill": 1.3}
    return dose, four_pl(dose, truth) + rng.normal(0, 2, len(dose))


def main():
    dose, response = assay()
    fit = minimize(
        pb.value_and_grad(weighted_sse),
        [0.0, 100.0, 0.0, 1.0],
        args=(dose, response),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-20, 50), (50, 150), (-4, 3), (0.2, 5)],
    )
    bottom, top, log_ec50, hill = fit.x
    print(f"bottom {bottom:.2f}  top {top:.2f}  EC50 {10**log_ec50:.3f}  hill {hill:.3f}   (true 2, 98, 0.35, 1.3)")
    print(f"weighted mean square {fit.fun:.4f}, {fit.message}")


if __name__ == "__main__":
    main()
