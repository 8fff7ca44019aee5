"""Multinomial logistic regression on minibatches, with integer labels and a step compiled whole."""

import numpy as np

import pullback as pb


def softmax_cross_entropy(W, b, X, labels, l2):
    scores = X @ W + b
    scores -= scores.max(axis=1, keepdims=True)
    log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    data_loss = -log_p[np.arange(len(labels)), labels].mean()
    return data_loss + 0.5 * l2 * np.sum(W * W)


def spiral(per_class=120, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for k in range(classes):
        r = np.linspace(0.1, 1, per_class)
        t = np.linspace(k * 2, k * 2 + 1.5, per_class) + 0.15 * rng.normal(size=per_class)
        X.append(np.c_[r * np.sin(t), r * np.cos(t)])
        y += [k] * per_class
    X = np.concatenate(X)
    features = np.column_stack([X, X**2, X.prod(axis=1), np.hypot(*X.T), np.sin(3 * X), np.cos(3 * X)])
    return features, np.array(y)


def main():
    X, y = spiral()
    W, b = np.zeros((X.shape[1], 3)), np.zeros(3)
    loss_and_grad = pb.value_and_grad(softmax_cross_entropy, argnums=(0, 1))
    rng = np.random.default_rng(1)
    for epoch in range(60):
        order = rng.permutation(len(y))
        for start in range(0, len(y), 50):
            batch = order[start : start + 50]
            value, (dW, db) = loss_and_grad(W, b, X[batch], y[batch], 1e-4)
            W -= 0.5 * dW
            b -= 0.5 * db
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1}: loss {value:.4f}, right {np.mean(np.argmax(X @ W + b, axis=1) == y):.1%}")


if __name__ == "__main__":
    main()
