"""Parts that several heads share: inputs, vectors of texts, dense layers, checks."""

import operator
import warnings

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import Dropout, SentencePooling
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller


def encoder_inputs(encoder, pairs=False):
    """Return new inputs of a model, a dict with the names of the encoder's inputs."""
    check_encoder(encoder, pairs)
    return {key: token_input(key) for key in encoder.input}


def token_input(name):
    """Return an input of integers, int32 (batch, seq)."""
    return keras.Input(shape=(None,), dtype="int32", name=name)


def check_encoder(encoder, pairs=False):
    """Raise a `ValueError` unless `encoder` is a `BertEncoder` that can read pairs of texts."""
    if not isinstance(encoder, BertEncoder):
        raise ValueError(
            f"encoder must be a BertEncoder; received {shown(encoder)}. Load one with "
            "keras_bert.load, or take that of a model, heads.find_encoder(model)"
        )
    segments = encoder.bert_config["type_vocab_size"]
    if pairs and segments < 2:
        raise ValueError(f"pairs need a type_vocab_size of at least 2; received {segments}")


def pooled_output(encoder, outputs):
    """Return the output of the pooler; warn if the pooler has random weights."""
    if encoder.warns_of_new_pooler and encoder.fresh_pooler:
        encoder.warns_of_new_pooler = False
        warnings.warn(
            "this head reads the pooler, which has random weights, because the checkpoint has no "
            'pooler. Train the model; or give the encoder pooling="mean" or "cls"',
            stacklevel=level_of_caller(),
        )
    return outputs["pooled_output"]


def dense(encoder, x, units, name):
    """Apply a new dense layer with the encoder's initializer and dtype."""
    return keras.layers.Dense(
        units,
        # Not `layers.initializer`: the config of this layer holds its initializer.
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=encoder.bert_config["initializer_range"]
        ),
        dtype=float_policy(encoder),
        name=name,
    )(x)


def text_vector(encoder, inputs, pooling, normalize=False):
    """Return one vector per text, (batch, hidden); of length 1 if `normalize` is True."""
    pooling = pooling or encoder.pooling or "pooler"
    if pooling == "pooler" and normalize:
        raise ValueError('normalize=True needs a pooling such as "mean"; received "pooler"')
    outputs = encoder(inputs)
    if pooling == "pooler":
        return pooled_output(encoder, outputs)
    layer = SentencePooling(pooling, normalize=normalize, name="pooling")
    return layer(outputs["sequence_output"], inputs["input_mask"])


def dropout_and_dense(encoder, x, units, dropout):
    """Apply dropout, by default with the encoder's rate, and a dense layer for the logits."""
    if dropout is None:
        dropout = encoder.bert_config["hidden_dropout_prob"]
    x = Dropout(dropout, dtype=float_policy(encoder), name="dropout")(x)
    return dense(encoder, x, units, "logits")


def float_policy(encoder):
    """Return the dtype policy for a new layer; a quantized encoder has a map of policies."""
    policy = encoder.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy.default_policy
    return policy


def check_labels(head, count, labels, least):
    """Return the labels of a classifier or tagger as strings."""
    if isinstance(labels, str):
        raise ValueError(f"labels must be a list of strings; received the string {shown(labels)}")
    try:
        count = operator.index(count or 0)
    except TypeError:
        raise ValueError(
            f"the number of classes of {head} must be an integer; received {shown(count)}. For "
            "names, give labels="
        ) from None
    if labels is None:
        labels = range(count)
    labels = [str(label) for label in labels]
    if len(labels) < least or len(labels) != (count or len(labels)):
        wanted = f"at least {least}" if len(labels) < least else count
        raise ValueError(f"{head} needs {wanted} classes; received {len(labels)}. Give labels")
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must be unique; received {shown(labels)}")
    return labels
