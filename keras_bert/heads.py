"""Task heads: functions from an encoder to a plain functional `keras.Model`.

A head ends in a `TaskOutput`, which has no weights: it hands the logits over in float32 and
remembers the task and the labels, so that a reloaded model still knows what it answers.
"""

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import initializer


@keras.saving.register_keras_serializable(package="keras_bert")
class TaskOutput(keras.layers.Layer):
    """The last layer of a head: logits in float32, and what they stand for.

    Args:
        task: name of the function in this module that built the model.
        labels: name of each class, in the order of the logits; `None` where there are none.
        pairs: whether the model reads pairs of texts.

    Example:

    >>> tuple(TaskOutput("classifier", labels=["no", "yes"])(keras.ops.ones((1, 2))).shape)
    (1, 2)
    """

    def __init__(self, task, labels=None, pairs=False, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.task = task
        self.pairs = pairs
        # A copy under a name that Keras does not track: a tracked list is no plain list.
        self._labels = None if labels is None else tuple(str(label) for label in labels)
        self.built = True

    @property
    def labels(self):
        """The class names, a list, or `None`."""
        return None if self._labels is None else list(self._labels)

    def call(self, logits):
        """Returns the logits (batch, ..., labels) in float32."""
        if self._labels is not None and logits.shape[-1] != len(self._labels):
            raise ValueError(f"there are {len(self._labels)} labels for {logits.shape[-1]} logits")
        return keras.ops.cast(logits, "float32")

    def compute_output_shape(self, logits_shape):
        return logits_shape

    def get_config(self):
        return {
            **super().get_config(),
            "task": self.task,
            "labels": self.labels,
            "pairs": self.pairs,
        }


def classifier(
    encoder, num_classes=None, *, labels=None, pairs=False, dropout=None, name="classifier"
):
    """One class for each text, or for each pair of texts.

    Dropout and a dense layer on the pooled [CLS] vector. Fit it with
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.

    Source: section 4.1 of the paper; `create_model` in google-research/bert
    `run_classifier.py`.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied. Set `encoder.trainable = False`
            to train the head alone.
        num_classes: number of classes, at least 2; may be left out with `labels`.
        labels: the name of each class, in the order of the logits. Default: "0", "1", ...
        pairs: whether the model reads pairs of texts; `export` then asks for both.
        dropout: rate on the pooled vector; default: the encoder's `hidden_dropout_prob`.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's dict of inputs, each (batch, seq), to
        float32 logits (batch, num_classes).

    Raises:
        ValueError: fewer than two classes, a label twice, or another number of labels than
            `num_classes`.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> classifier(encoder, labels=["bad", "good"]).output_shape
    (None, 2)
    """
    if labels is None:
        labels = [str(index) for index in range(num_classes or 0)]
    labels = [str(label) for label in labels]
    if num_classes is not None and len(labels) != num_classes:
        raise ValueError(f"num_classes is {num_classes}, but there are {len(labels)} labels")
    if len(labels) < 2:
        raise ValueError(f"a classifier needs at least 2 classes; received {len(labels)}")
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise ValueError(f"each label may occur once; received {repeated[0]!r} twice")
    # They are lines of labels.txt and fields of TSV files.
    broken = next((label for label in labels if not label or set(label) & set("\t\r\n")), None)
    if broken is not None:
        raise ValueError(
            f"a label is neither empty nor holds tabs or line ends; received {broken!r}"
        )
    config = encoder.get_config()
    if dropout is None:
        dropout = config["hidden_dropout_prob"]

    inputs = {key: keras.Input(shape=(None,), dtype="int32", name=key) for key in encoder.input}
    x = encoder(inputs)["pooled_output"]  # (batch, hidden)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    x = keras.layers.Dense(
        len(labels),
        kernel_initializer=initializer(config["initializer_range"]),
        dtype=encoder.dtype_policy,
        name="logits",
    )(x)  # (batch, num_classes)
    outputs = TaskOutput("classifier", labels=labels, pairs=pairs, name="output")(x)
    return keras.Model(inputs, outputs, name=name)


def find_encoder(model):
    """Finds the encoder inside a model.

    Args:
        model: a `BertEncoder`, or a model built on one.

    Returns:
        The `BertEncoder`.

    Raises:
        ValueError: there is none, or more than one.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_encoder(classifier(encoder, 2)) is encoder
    True
    """
    found = [layer for layer in model._flatten_layers() if isinstance(layer, BertEncoder)]
    if len(found) != 1:
        raise ValueError(f"the model must hold one BertEncoder; {model.name!r} has {len(found)}")
    return found[0]


def find_output(model):
    """Finds the `TaskOutput` at the end of a model built by a head.

    Args:
        model: a `keras.Model`.

    Returns:
        The `TaskOutput`, or `None` if the model ends in something else.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_output(classifier(encoder, labels=["bad", "good"])).labels
    ['bad', 'good']
    """
    last = model.layers[-1] if model.layers else None
    return last if isinstance(last, TaskOutput) else None
