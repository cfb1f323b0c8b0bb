"""Regressions for the first weights of a new head, see `tasks.task.HeadStart`."""

import numpy as np


def fit_number(output, vectors, targets, weights):
    """Return [(weights, bias)] of a ridge regression for one number."""
    from sklearn.linear_model import Ridge

    fitted = Ridge().fit(vectors, targets.ravel(), weights)
    return [(fitted.coef_, fitted.intercept_)]


def fit_labels(output, vectors, targets, weights, c=1.0):
    """Return (weights, bias) for each class; `None` if all examples have one class.

    `targets` are classes (n,), or label sets (n, labels), whose labels are fitted one by one. `c`
    is the inverse of the strength of the regularization.
    """
    from sklearn.linear_model import LogisticRegression

    if targets.ndim == 2:
        return [_logistic(vectors, column, weights) for column in targets.T]
    classes = len(output.labels)
    if len(np.unique(targets)) < 2:
        return [None] * classes
    fitted = LogisticRegression(C=c, max_iter=1000).fit(vectors, targets, weights)
    kernel = fitted.coef_
    bias = fitted.intercept_
    if len(fitted.classes_) == 2:  # scikit-learn has one column then, the difference of the two
        kernel = np.stack([-kernel[0], kernel[0]]) / 2
        bias = np.array([-bias[0], bias[0]]) / 2
    # A class without examples starts as the least probable one.
    columns = [(np.zeros(vectors.shape[1]), bias.min())] * classes
    for label, *column in zip(fitted.classes_, kernel, bias, strict=True):
        columns[label] = column
    return columns


def _logistic(vectors, targets, weights):
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(targets)) < 2:
        return None
    fitted = LogisticRegression(max_iter=1000).fit(vectors, targets, weights)
    return fitted.coef_[0], fitted.intercept_[0]
