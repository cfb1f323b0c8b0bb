"""The first weights of a new head."""

import warnings

import keras
import numpy as np

from keras_bert import heads
from keras_bert.data.batching import SortedBatches, compiled_length
from keras_bert.runtime import distribution
from keras_bert.runtime.memory import advice_for_prediction, explain_out_of_memory
from keras_bert.tasks import registry
from keras_bert.tasks.forward_pass import forward_pass

_MAX_BATCH_SIZE = 32


def initialize_head(model, encoded, seed, batch_size=_MAX_BATCH_SIZE):
    """Set the weights of a new head to those of a regression on the encoder's vectors.

    A random head sends large first gradients into the encoder, which change what it has learned.
    Taggers of 500 sentences with random heads learned no tag. Classifiers and regressors whose
    encoder has no `pooling`, such as BERT, keep their random weights: it was not trained to make
    vectors of texts.

    Source: Kumar et al. (2022), Fine-tuning can distort pretrained features and underperform
    out-of-distribution.
    """
    task = registry.find(model)
    start = None if task is None else task.head_start
    if start is None or (start.needs_pooling and not _pools_like_its_encoder(model)):
        return
    head_fitter(model, start, encoded, seed, batch_size)()


def head_fitter(model, start, encoded, seed, batch_size=_MAX_BATCH_SIZE):
    """Return a function that fits the head to the encoder's vectors, as a `HeadStart` says."""
    rows = np.random.default_rng(seed).permutation(len(encoded))[: start.max_sequences]
    if start.max_tokens is not None:
        rows = rows[np.cumsum(encoded.lengths[rows]) <= start.max_tokens]
    batch_size = min(batch_size, _MAX_BATCH_SIZE)
    predict = forward_pass(keras.Model(model.input, model.get_layer("logits").input))

    def fit_head():
        with explain_out_of_memory(lambda: advice_for_prediction(batch_size)):
            vectors, targets, weights = _vectors(predict, encoded, rows, batch_size)
        _fit(model, start, vectors, targets, weights)

    return fit_head


def _fit(model, start, vectors, targets, weights):
    """Fit the regression, and set the weights of the head."""
    from sklearn.exceptions import ConvergenceWarning

    kernel, bias = model.get_layer("logits").get_weights()
    with warnings.catch_warnings():
        # The weights only have to be a good start.
        warnings.simplefilter("ignore", ConvergenceWarning)
        columns = start.fit(heads.find_output(model), vectors, targets, weights)
    for index, column in enumerate(columns):
        if column is not None:
            kernel[:, index], bias[index] = column
    model.get_layer("logits").set_weights([kernel, bias])


def _pools_like_its_encoder(model):
    """Return True if the head reads vectors that its encoder was trained to make."""
    pooling = heads.find_encoder(model).pooling
    names = [layer.name for layer in model.layers]
    has_pooling = pooling is not None and "pooling" in names
    return has_pooling and model.get_layer("pooling").mode == pooling


def _vectors(predict, encoded, rows, batch_size):
    """Return vectors (n, hidden), targets and weights of some sequences or their words."""
    longest = int(encoded.lengths[rows].max())
    lengths = (compiled_length(longest, encoded.max_length),) if predict.compiles else None
    devices = 1 if lengths is None else distribution.replicas()
    batches = SortedBatches(encoded, batch_size, lengths, chosen=rows, devices=devices)
    parts = []
    for index in range(len(batches)):
        inputs, targets, weights = batches[index]
        vectors = keras.ops.convert_to_numpy(predict(inputs))
        # Padding has weight 0. In tagged sentences, so have all tokens but the first of each word.
        is_used = weights > 0
        if vectors.ndim == 3:
            weights = np.ones_like(weights)
        parts.append((vectors[is_used], targets[is_used], weights[is_used]))
    return (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
