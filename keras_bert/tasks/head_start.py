"""Regressions for the first weights of a new head, see `tasks.task.HeadStart`."""

import numpy as np

# With more labels, logistic regressions take minutes, and discriminant analysis takes seconds.
_MANY_LABELS = 500


def fit_number(output, vectors, targets, weights):
    """Return [(weights, bias)] of a ridge regression for one number; [`None`] without weights."""
    from sklearn.linear_model import Ridge

    if not weights.any():
        return [None]
    standardized = (targets.ravel() - output.target_mean) / output.target_scale
    fitted = Ridge().fit(vectors, standardized, weights)
    return [(fitted.coef_, fitted.intercept_)]


def fit_labels(output, vectors, targets, weights, c=1.0):
    """Return (weights, bias) for each class; `None` if all examples have one class or weight 0.

    `targets` are classes (n,), or probabilities (n, labels), whose labels are fitted one by one.
    `c` is the inverse of the strength of the regularization.
    """
    from sklearn.linear_model import LogisticRegression

    classes = len(output.labels)
    if not weights.any():
        return [None] * classes
    if targets.ndim == 2:
        if classes > _MANY_LABELS:
            return _discriminants_of_sets(vectors, targets, weights)
        return [_logistic(vectors, column, weights) for column in targets.T]
    if len(np.unique(targets)) < 2:
        return [None] * classes
    if classes > _MANY_LABELS:
        return _discriminants_of_classes(vectors, targets, weights, classes)
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

    has_label = targets >= 0.5  # the targets can be probabilities
    if has_label.all() or not has_label.any():
        return None
    fitted = LogisticRegression(max_iter=1000).fit(vectors, has_label, weights)
    return fitted.coef_[0], fitted.intercept_[0]


def _discriminants_of_classes(vectors, targets, weights, classes):
    """Return (weights, bias) for each class by linear discriminant analysis.

    A class without examples starts as the least probable one.
    """
    vectors = np.asarray(vectors, np.float64)
    count = np.bincount(targets, weights, classes)  # of each class
    total = np.zeros((classes, vectors.shape[1]))
    np.add.at(total, targets, vectors * weights[:, None])
    mean = total / np.maximum(count, 1e-9)[:, None]
    center = mean[targets]
    if len(vectors) < 2 * classes:  # too few vectors of each class to know how they vary
        center = np.average(vectors, axis=0, weights=weights)
    kernel = _divided_by_covariance(mean, vectors - center)
    bias = np.log(np.maximum(count, 1e-9)) - np.sum(mean * kernel, axis=1) / 2
    is_missing = count == 0
    kernel[is_missing] = 0.0
    bias[is_missing] = bias[~is_missing].min()
    return list(zip(kernel, bias, strict=True))


def _discriminants_of_sets(vectors, targets, weights):
    """Return (weights, bias) for each label by a linear discriminant analysis of two classes.

    It is `None` if all or no examples have the label.
    """
    vectors = np.asarray(vectors, np.float64)
    weighted = vectors * weights[:, None]
    with_label = targets.T @ weights
    without_label = weights.sum() - with_label
    total = targets.T @ weighted
    mean_with = total / np.maximum(with_label, 1e-9)[:, None]
    mean_without = (weighted.sum(axis=0) - total) / np.maximum(without_label, 1e-9)[:, None]
    center = np.average(vectors, axis=0, weights=weights)
    kernel = _divided_by_covariance(mean_with - mean_without, vectors - center)
    odds = np.log(np.maximum(with_label, 1e-9) / np.maximum(without_label, 1e-9))
    bias = odds - np.sum((mean_with + mean_without) * kernel, axis=1) / 2
    is_mixed = (with_label > 0) & (without_label > 0)
    columns = zip(kernel, bias, is_mixed, strict=True)
    return [(row, number) if mixed else None for row, number, mixed in columns]


def _divided_by_covariance(rows, centered):
    """Multiply rows by the inverse of the covariance of centered vectors."""
    from sklearn.covariance import ledoit_wolf

    covariance, _ = ledoit_wolf(centered, assume_centered=True)
    return np.linalg.solve(covariance, rows.T).T
