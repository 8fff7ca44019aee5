"""Item response theory: abilities of pupils and difficulties of questions, with answers missing."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def negative_log_posterior(params, answers):
    """The two-parameter logistic model; answers: 1 right, 0 wrong, -1 not administered, shape (pupils, items)."""
    ability, difficulty, log_slope = params
    logit = np.exp(log_slope) * (ability[:, None] - difficulty[None, :])
    ll = np.where(answers == 1, -np.logaddexp(0, -logit), -np.logaddexp(0, logit))
    asked = answers >= 0
    prior = 0.5 * (np.sum(ability**2) + 0.1 * np.sum(difficulty**2) + 4 * np.sum(log_slope**2))
    return prior - (ll * asked).sum()


def school(pupils=150, items=20, seed=0):
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(size=pupils), np.linspace(-2, 2, items)
    slope = rng.lognormal(0, 0.3, items)
    p = 1 / (1 + np.exp(-slope * (ability[:, None] - difficulty)))
    answers = (rng.uniform(size=p.shape) < p).astype(np.int8)
    answers[rng.uniform(size=p.shape) < 0.2] = -1
    return answers, ability, difficulty


def main():
    answers, ability, difficulty = school()
    pupils, items = answers.shape
    cuts = [pupils, pupils + items]

    def flat_loss(x):
        return negative_log_posterior(np.split(x, cuts), answers)

    fit = minimize(pb.value_and_grad(flat_loss), np.zeros(pupils + 2 * items), jac=True, method="L-BFGS-B")
    found_ability, found_difficulty, _ = np.split(fit.x, cuts)
    print(f"{pupils} pupils, {items} questions, {np.mean(answers < 0):.0%} not asked; {fit.nit} steps")
    print(f"correlation with the truth: abilities {np.corrcoef(ability, found_ability)[0, 1]:.3f}, ", end="")
    print(f"difficulties {np.corrcoef(difficulty, found_difficulty)[0, 1]:.3f}")


if __name__ == "__main__":
    main()
