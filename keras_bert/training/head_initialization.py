"""The first weights of a new head."""

import warnings

import keras
import numpy as np

from keras_bert import heads
from keras_bert.data.batching import LENGTHS
from keras_bert.exporting.predict_function import predict_function

# Sequences that a regression is fitted to. For a tagger, each word is an example.
_MAX_SEQUENCES = {"classification": 2000, "regression": 2000, "tagging": 500}
_MAX_TOKENS_OF_TAGGER = 30_000
_BATCH_SIZE = 32
# `C` of scikit-learn's logistic regression on words. With 1, its default, the head fits a small
# training set so closely that the encoder gets small gradients: entity F1 0.85 instead of 0.92 on
# the sentences of examples/data. With 0.001, 500 sentences of WNUT-17 give 0.38 instead of 0.42.
_TAGGER_C = 0.01


def initialize_head(model, encoded, seed):
    """Set the weights of a new head to those of a regression on the encoder's vectors.

    The regression, logistic for classes and tags, is fitted to at most 2,000 training texts or 500
    sentences. With random weights instead, the first gradients would change what the encoder has
    learned, and 500 sentences would be too few to learn a tag. Classifiers and regressors whose
    encoder has no `pooling`, such as BERT, keep their random weights: it was not trained to make
    vectors of texts.

    Source: Kumar et al. (2022), Fine-tuning can distort pretrained features and underperform
    out-of-distribution.
    """
    output = heads.find_output(model)
    if output.task not in _MAX_SEQUENCES:
        return
    pooling = heads.find_encoder(model).pooling
    names = [layer.name for layer in model.layers]
    if output.task != "tagging" and (
        pooling is None or "pooling" not in names or model.get_layer("pooling").mode != pooling
    ):
        return
    from sklearn.exceptions import ConvergenceWarning

    rows = np.random.default_rng(seed).permutation(len(encoded))[: _MAX_SEQUENCES[output.task]]
    if output.task == "tagging":
        rows = rows[np.cumsum(encoded.lengths[rows]) <= _MAX_TOKENS_OF_TAGGER]
    vectors, targets, weights = _vectors(model, encoded, rows)
    kernel, bias = model.get_layer("logits").get_weights()
    with warnings.catch_warnings():
        # The weights only have to be a good start.
        warnings.simplefilter("ignore", ConvergenceWarning)
        columns = _logit_weights(output, vectors, targets, weights)
    for index, column in enumerate(columns):
        if column is not None:
            kernel[:, index], bias[index] = column
    model.get_layer("logits").set_weights([kernel, bias])


def _vectors(model, encoded, rows):
    """Return vectors (n, hidden), targets and weights of some sequences or their words."""
    rows = rows[np.argsort(encoded.lengths[rows], kind="stable")]
    features = keras.Model(model.input, model.get_layer("logits").input)
    predict, parts = predict_function(features), []
    for start in range(0, len(rows), _BATCH_SIZE):
        chosen = rows[start : start + _BATCH_SIZE]
        longest = int(encoded.lengths[chosen].max())
        length = next((size for size in LENGTHS if size >= longest), longest)
        inputs, targets, weights = encoded.batch(chosen, min(length, encoded.max_length))
        vectors = np.asarray(predict(inputs))
        if vectors.ndim == 3:  # those of all tokens, of which the first of each word has a weight
            is_word = weights > 0
            vectors, targets = vectors[is_word], targets[is_word]
            weights = np.ones(len(targets))
        parts.append((vectors, targets, weights))
    return (np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _logit_weights(output, vectors, targets, weights):
    """Return (weights, bias) of each logit. `None`: keep the random weights."""
    if output.task == "regression":
        return [_ridge(vectors, targets.ravel(), weights)]
    if output.multi_label:
        return [_logistic(vectors, column, weights) for column in targets.T]
    c = _TAGGER_C if output.task == "tagging" else 1.0
    return _softmax(vectors, targets, weights, len(output.labels), c)


def _ridge(vectors, targets, weights):
    from sklearn.linear_model import Ridge

    fitted = Ridge().fit(vectors, targets, weights)
    return fitted.coef_, fitted.intercept_


def _logistic(vectors, targets, weights):
    """Return weights and bias for one of several labels, or `None` if all texts agree on it."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(targets)) < 2:
        return None
    fitted = LogisticRegression(max_iter=1000).fit(vectors, targets, weights)
    return fitted.coef_[0], fitted.intercept_[0]


def _softmax(vectors, targets, weights, classes, c):
    """Return weights and bias of each class, `None` if all examples have one class."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(targets)) < 2:
        return [None] * classes
    fitted = LogisticRegression(C=c, max_iter=1000).fit(vectors, targets, weights)
    kernel, bias = fitted.coef_, fitted.intercept_
    if len(fitted.classes_) == 2:  # scikit-learn has one column then, the difference of the two
        kernel, bias = np.stack([-kernel[0], kernel[0]]) / 2, np.array([-bias[0], bias[0]]) / 2
    # A class without examples starts as the least probable one.
    columns = [(np.zeros(vectors.shape[1]), bias.min())] * classes
    for label, *column in zip(fitted.classes_, kernel, bias, strict=True):
        columns[label] = column
    return columns
