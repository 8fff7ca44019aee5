# %% [markdown]
# Who defaults? Logistic regression, cell by cell, with the data in globals as one does in a notebook.

# %%
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import pullback as pb

# %%
rng = np.random.default_rng(42)
n, p = 500, 8
X = rng.normal(size=(n, p))
w_true = rng.normal(size=p)
y = (rng.uniform(size=n) < expit(X @ w_true - 0.5)).astype(int)
lam = 0.01


# %%
def loss(w):
    z = X @ w[:-1] + w[-1]
    nll = np.logaddexp(0, z) - y * z
    return nll.mean() + lam * (w[:-1] ** 2).sum()


# %%
def accuracy(w):
    return np.mean((X @ w[:-1] + w[-1] > 0) == y)


# %%
def main():
    global lam
    g = pb.value_and_grad(loss)
    w0 = np.zeros(p + 1)
    for lam in [1.0, 0.1, 0.01, 0.001]:
        res = minimize(g, w0, jac=True, method="L-BFGS-B")
        print(f"lam={lam:<6} loss={res.fun:.4f}  |w|={np.linalg.norm(res.x[:-1]):.3f}  accuracy={accuracy(res.x):.3f}")


# %%
if __name__ == "__main__":
    main()
