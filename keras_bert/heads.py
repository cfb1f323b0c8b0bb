"""Task heads: functions from an encoder to a plain functional `keras.Model`.

A head ends in a `TaskOutput`, which has no weights: it hands the logits over in float32 and
remembers the task and the labels, so that a reloaded model still knows what it answers.
"""

import collections

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import (
    Dropout,
    MaskedLMHead,
    MergeChoices,
    SentencePooling,
    SplitChoices,
    WeightedSum,
    WithoutDropout,
)


@keras.saving.register_keras_serializable(package="keras_bert")
class TaskOutput(keras.layers.Layer):
    """The last layer of a head: logits in float32, and what they stand for.

    Args:
        task: name of the function in this module that built the model.
        labels: name of each class, in the order of the logits; `None` where there are none.
        pairs: whether the model reads pairs of texts.
        multi_label: whether each class is a yes or no of its own.
        no_answer: whether a question may have none.
        names: splits the last axis into outputs of these names; `None`: one tensor.
        characters: whether each character of a text is a word to be tagged.

    Example:

    >>> tuple(TaskOutput("classifier", labels=["no", "yes"])(keras.ops.ones((1, 2))).shape)
    (1, 2)
    """

    def __init__(
        self,
        task,
        labels=None,
        pairs=False,
        multi_label=False,
        no_answer=False,
        names=None,
        characters=False,
        **kwargs,
    ):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.task = task
        self.characters = characters
        self.pairs = pairs
        self.multi_label = multi_label
        self.no_answer = no_answer
        # Copies under names that Keras does not track: a tracked list is no plain list.
        self._labels = None if labels is None else tuple(str(label) for label in labels)
        self._names = None if names is None else tuple(names)
        self.supports_masking = True  # of Keras' own layers, in a model of the user's
        self.built = True

    @property
    def labels(self):
        """The class names, a list, or `None`."""
        return None if self._labels is None else list(self._labels)

    def call(self, logits):
        """Returns the logits (batch, ..., labels) in float32; with names a dict of (batch, ...)."""
        if self._labels is not None and logits.shape[-1] != len(self._labels):
            raise ValueError(f"there are {len(self._labels)} labels for {logits.shape[-1]} logits")
        logits = keras.ops.cast(logits, "float32")
        if self._names is None:
            return logits
        return {name: logits[..., index] for index, name in enumerate(self._names)}

    def compute_output_spec(self, logits):
        spec = keras.KerasTensor(logits.shape, dtype="float32")
        if self._names is None:
            return spec
        return {name: keras.KerasTensor(logits.shape[:-1], "float32") for name in self._names}

    def get_config(self):
        return {
            **super().get_config(),
            "task": self.task,
            "labels": self.labels,
            "pairs": self.pairs,
            "multi_label": self.multi_label,
            "no_answer": self.no_answer,
            "names": None if self._names is None else list(self._names),
            "characters": self.characters,
        }


def classifier(
    encoder,
    num_classes=None,
    *,
    labels=None,
    pairs=False,
    multi_label=False,
    dropout=None,
    name="classifier",
):
    """One class for each text, or for each pair of texts; or any number of classes.

    Dropout and a dense layer on the pooled [CLS] vector. Fit it with
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, with `multi_label` with
    `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Source: section 4.1 of the paper; `create_model` in google-research/bert
    `run_classifier.py`.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied. Set `encoder.trainable = False`
            to train the head alone.
        num_classes: number of classes, at least 2 (1 with `multi_label`); may be left out with
            `labels`.
        labels: the name of each class, in the order of the logits. Default: "0", "1", ...
        pairs: whether the model reads pairs of texts; `export` then asks for both.
        multi_label: whether a text may have several classes, or none.
        dropout: rate on the pooled vector; default: the encoder's `hidden_dropout_prob`.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's dict of inputs, each (batch, seq), to
        float32 logits (batch, num_classes).

    Raises:
        ValueError: too few classes, a label twice, or another number of labels than
            `num_classes`.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> classifier(encoder, labels=["bad", "good"]).output_shape
    (None, 2)
    """
    labels = _check_labels("a classifier", num_classes, labels, least=1 if multi_label else 2)
    inputs = _inputs(encoder)
    x = encoder(inputs)["pooled_output"]  # (batch, hidden)
    x = _dropout_and_dense(encoder, x, len(labels), dropout)  # (batch, num_classes)
    output = TaskOutput(
        "classifier", labels=labels, pairs=pairs, multi_label=multi_label, name="output"
    )
    return keras.Model(inputs, output(x), name=name)


def regressor(encoder, *, pairs=False, dropout=None, name="regressor"):
    """A number for each text, or for each pair of texts, such as their likeness.

    Fit it with `keras.losses.MeanSquaredError()`.

    Source: STS-B in section 4.1 of the paper.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        pairs: whether the model reads pairs of texts.
        dropout: rate on the pooled vector; default: the encoder's `hidden_dropout_prob`.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, 1).

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> regressor(encoder, pairs=True).output_shape
    (None, 1)
    """
    inputs = _inputs(encoder)
    x = encoder(inputs)["pooled_output"]  # (batch, hidden)
    x = _dropout_and_dense(encoder, x, 1, dropout)  # (batch, 1)
    return keras.Model(inputs, TaskOutput("regressor", pairs=pairs, name="output")(x), name=name)


def tagger(encoder, num_tags=None, *, labels=None, characters=False, dropout=None, name="tagger"):
    """A label for each position, such as entities or parts of speech.

    The first piece of a word carries the word's label; give all other positions the sample
    weight 0. Fit it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.

    Source: section 5.3 of the paper.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        num_tags: number of tags, at least 2; may be left out with `labels`.
        labels: the name of each tag, in the order of the logits. Default: "0", "1", ...
        characters: whether a word is a character, as in KLUE's entities. It says how a text
            that is no list of words is split, by `predict` and in a SavedModel: into characters,
            or at white space and punctuation.
        dropout: rate on the vectors; default: the encoder's `hidden_dropout_prob`.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 logits
        (batch, seq, num_tags).

    Raises:
        ValueError: fewer than two tags, a label twice, or another number of labels than
            `num_tags`.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> tagger(encoder, labels=["O", "B-place", "I-place"]).output_shape
    (None, None, 3)
    """
    labels = _check_labels("a tagger", num_tags, labels, least=2)
    inputs = _inputs(encoder)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    x = _dropout_and_dense(encoder, x, len(labels), dropout)  # (batch, seq, num_tags)
    output = TaskOutput("tagger", labels=labels, characters=characters, name="output")
    return keras.Model(inputs, output(x), name=name)


def span_selector(encoder, *, no_answer=False, dropout=0.0, name="span_selector"):
    """The first and the last piece of the answer to a question: [CLS] question [SEP] context [SEP].

    Fit it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True)` for both outputs;
    where there is no answer, the target of both is 0, the position of [CLS].

    Source: sections 4.2 and 4.3 of the paper; `create_model` in google-research/bert
    `run_squad.py`, which has no dropout here.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        no_answer: whether questions may have no answer (SQuAD 2).
        dropout: rate on the vectors.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to a dict of float32 logits
        `start_logits` and `end_logits`, each (batch, seq).

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> sorted(span_selector(encoder).output)
    ['end_logits', 'start_logits']
    """
    inputs = _inputs(encoder)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    x = _dropout_and_dense(encoder, x, 2, dropout)  # (batch, seq, 2)
    output = TaskOutput(
        "span_selector",
        pairs=True,
        no_answer=no_answer,
        names=("start_logits", "end_logits"),
        name="output",
    )
    return keras.Model(inputs, output(x), name=name)


def multiple_choice(encoder, *, dropout=None, name="multiple_choice"):
    """The best of several continuations: a score for each, compared by softmax.

    Fit it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.

    Source: section 4.4 of the paper (SWAG).

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        dropout: rate on the pooled vectors; default: the encoder's `hidden_dropout_prob`.
        name: of the model.

    Returns:
        A functional `keras.Model` from a dict with the names of the encoder's inputs, each
        (batch, choices, seq), to float32 logits (batch, choices).

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> ids = keras.ops.ones((2, 4, 7), dtype="int32")
    >>> tuple(multiple_choice(encoder)(dict.fromkeys(encoder.input, ids)).shape)
    (2, 4)
    """
    inputs = {
        key: keras.Input(shape=(None, None), dtype="int32", name=key) for key in encoder.input
    }
    merged = {key: MergeChoices(name=f"merge_{key}")(value) for key, value in inputs.items()}
    x = encoder(merged)["pooled_output"]  # (batch * choices, hidden)
    x = _dropout_and_dense(encoder, x, 1, dropout)  # (batch * choices, 1)
    x = SplitChoices(name="split_choices")(x, inputs["input_word_ids"])  # (batch, choices)
    return keras.Model(inputs, TaskOutput("multiple_choice", name="output")(x), name=name)


def masked_lm(encoder, *, name="masked_lm"):
    """The pieces behind [MASK]: logits over the vocabulary at chosen positions.

    The output matrix is the encoder's word embeddings, also after a reload.

    Source: section 3.1 of the paper, task 1.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs and `masked_lm_positions`, int32
        (batch, predictions), to float32 logits (batch, predictions, vocab_size).

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> masked_lm(encoder).output_shape
    (None, None, 9)
    """
    inputs, x = _predicting_encoder(encoder)
    logits = _masked_lm_logits(encoder, x)
    return keras.Model(inputs, TaskOutput("masked_lm", name="output")(logits), name=name)


def next_sentence(encoder, *, name="next_sentence"):
    """Whether the second text follows the first: class 0 it does, class 1 it does not.

    Source: section 3.1 of the paper, task 2; `get_next_sentence_output` in google-research/bert
    `run_pretraining.py`.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 logits (batch, 2).

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_output(next_sentence(encoder)).labels
    ['next', 'random']
    """
    inputs = _inputs(encoder)
    x = _dense(encoder, encoder(inputs)["pooled_output"], 2, "next_sentence")  # (batch, 2)
    output = TaskOutput("next_sentence", labels=["next", "random"], pairs=True, name="output")
    return keras.Model(inputs, output(x), name=name)


def pretraining(encoder, *, name="pretraining"):
    """Both heads of pretraining on one pass of the encoder.

    Source: section 3.1 of the paper.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs and `masked_lm_positions`, int32
        (batch, predictions), to a dict of float32 logits: `masked_lm` (batch, predictions,
        vocab_size) and `next_sentence` (batch, 2).

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> {key: value.shape for key, value in pretraining(encoder).output.items()}
    {'masked_lm': (None, None, 9), 'next_sentence': (None, 2)}
    """
    inputs, x = _predicting_encoder(encoder)
    outputs = {
        "masked_lm": _masked_lm_logits(encoder, x),
        "next_sentence": _dense(encoder, x["pooled_output"], 2, "next_sentence"),
    }
    outputs = {
        task: TaskOutput(task, pairs=True, name=f"{task}_output")(logits)
        for task, logits in outputs.items()
    }
    return keras.Model(inputs, outputs, name=name)


def packed_pretraining(model, *, name="packed_pretraining"):
    """A pretraining model for rows that hold several pairs each; it shares all its layers.

    A pair sees itself alone and counts its own positions, so it gets the logits that it would get
    in a row of its own.

    Source: Krell et al. (2021), Efficient sequence packing without cross-contamination.

    Args:
        model: from `pretraining` or `masked_lm`.
        name: of the new model.

    Returns:
        A functional `keras.Model`. Inputs, int32: `input_word_ids`, `input_type_ids`,
        `position_ids` and `text_ids` (batch, seq), the last 1 for the positions of the first pair,
        2 for those of the second, 0 for padding; `masked_lm_positions` (batch, predictions);
        for next sentences also `first_positions` (batch, texts), where the [CLS]s stand. Outputs:
        as those of the model, but `next_sentence` is (batch, texts, 2).

    Raises:
        ValueError: another model.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> packed = packed_pretraining(pretraining(encoder))
    >>> {key: value.shape for key, value in packed.output.items()}
    {'masked_lm': (None, None, 9), 'next_sentence': (None, None, 2)}
    """
    task = find_task(model)
    if task not in ("pretraining", "masked_lm"):
        raise ValueError(f"the model must be of pretraining or masked_lm; received {task}")
    inputs = _packed_inputs()
    inputs["masked_lm_positions"] = wanted = _input("masked_lm_positions")
    optional = {"output_positions": wanted}
    if task == "pretraining":
        inputs["first_positions"] = optional["first_positions"] = _input("first_positions")
    x = _packed_encoder(find_encoder(model), inputs, **optional)
    logits = model.get_layer("masked_lm")(x["sequence_output"])
    if task == "masked_lm":
        return keras.Model(inputs, model.get_layer("output")(logits), name=name)
    next_sentence = model.get_layer("next_sentence")(x["pooled_output"])  # (batch, texts, 2)
    outputs = {
        "masked_lm": model.get_layer("masked_lm_output")(logits),
        "next_sentence": model.get_layer("next_sentence_output")(next_sentence),
    }
    return keras.Model(inputs, outputs, name=name)


def packed(model, *, name="packed"):
    """A model for rows that hold several texts each; it shares all its layers.

    A text sees itself alone and counts its own positions, so it gets the logits that it would get
    in a row of its own.

    Source: Krell et al. (2021), Efficient sequence packing without cross-contamination.

    Args:
        model: from `classifier`, `regressor` or `tagger`.
        name: of the new model.

    Returns:
        A functional `keras.Model`. Inputs, int32: `input_word_ids`, `input_type_ids`,
        `position_ids` and `text_ids` (batch, seq), the last 1 for the positions of the first text
        (or pair), 2 for those of the second, 0 for padding; but for a tagger also
        `first_positions` (batch, texts), where the [CLS]s stand. Output: logits, (batch, seq,
        num_tags) of a tagger and (batch, texts, ...) of the others.

    Raises:
        ValueError: another model, or one with layers of your own.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> packed(classifier(encoder, 3)).output_shape
    (None, None, 3)
    """
    if not can_be_packed(model):
        raise ValueError(
            "the model must be of classifier, regressor or tagger as they are; received "
            f"{model.name!r}"
        )
    inputs, encoder = _packed_inputs(), find_encoder(model)
    if find_task(model) == "tagger":
        x = _packed_encoder(encoder, inputs)["sequence_output"]
    else:
        inputs["first_positions"] = firsts = _input("first_positions")
        # The head reads the [CLS]s alone, so the last layer computes no others.
        x = _packed_encoder(
            encoder, inputs, first_positions=firsts, output_positions=firsts[:, :0]
        )["pooled_output"]
    for layer in ("dropout", "logits", "output"):
        x = model.get_layer(layer)(x)
    return keras.Model(inputs, x, name=name)


def can_be_packed(model):
    """Whether `packed` takes a model.

    Args:
        model: a `keras.Model`.

    Returns:
        A bool.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> can_be_packed(tagger(encoder, 3)), can_be_packed(span_selector(encoder))
    (True, False)
    """
    if find_task(model) not in ("classifier", "regressor", "tagger"):
        return False
    # Anything of the user's in between, a mask of attention say, would be lost; and what is made by
    # `keras.ops` is no layer.
    steps = [step for step in model.operations if not isinstance(step, keras.layers.InputLayer)]
    names = [step.name for step in steps[1:]]
    if not isinstance(steps[0], BertEncoder) or names != ["dropout", "logits", "output"]:
        return False
    if not isinstance(model.input, dict) or set(model.input) != set(steps[0].input):
        return False
    # Which of the encoder's outputs, of which layer say, is no step.
    tensor = model.output
    for _ in names:
        history = tensor._keras_history
        (tensor,) = history.operation._inbound_nodes[history.node_index].input_tensors
    wanted = "sequence_output" if find_task(model) == "tagger" else "pooled_output"
    paths = [path for path, _ in keras.tree.flatten_with_path(steps[0].output)]
    return paths[tensor._keras_history.tensor_index] == (wanted,)


def embedder(encoder, *, pooling="mean", normalize=True, name="embedder"):
    """A vector for each text, to compare texts by cosine.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3.

    Args:
        encoder: a `BertEncoder`; it is shared, not copied.
        pooling: `"mean"` over real positions, `"max"`, or `"cls"`.
        normalize: whether vectors are scaled to length 1, so that their product is the cosine.
        name: of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, hidden).

    Raises:
        ValueError: another pooling.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> embedder(encoder).output_shape
    (None, 4)
    """
    inputs = _inputs(encoder)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    x = SentencePooling(pooling, normalize, name="pooling")(x, inputs["input_mask"])
    return keras.Model(inputs, TaskOutput("embedder", name="output")(x), name=name)


def features(encoder, layers=None, combine="concat", *, name="features"):
    """Vectors of a frozen encoder, for a model of your own on top.

    Source: section 5.3 and table 7 of the paper.

    Args:
        encoder: a `BertEncoder`; it is shared, and its `trainable` becomes `False`.
        layers: which layers: one number or several, from 0 to `num_hidden_layers` - 1, or
            negative from the last; default: the last four, or all where there are fewer.
        combine: `"concat"`, `"sum"`, `"mean"`, or `"weighted_sum"`, whose weights are learned.

    Returns:
        A functional `keras.Model` from the encoder's inputs to (batch, seq, hidden); with
        `"concat"` (batch, seq, hidden * number of layers).

    Raises:
        ValueError: there is no such layer, or another way to combine.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> features(encoder, (-2, -1)).output_shape
    (None, None, 8)
    >>> features(encoder, -2).output_shape
    (None, None, 4)
    """
    ways = {
        "concat": keras.layers.Concatenate,
        "sum": keras.layers.Add,
        "mean": keras.layers.Average,
        "weighted_sum": WeightedSum,
    }
    if combine not in ways:
        raise ValueError(f"combine must be one of {', '.join(ways)}; received {combine!r}")
    count = encoder.get_config()["num_hidden_layers"]
    if layers is None:
        layers = range(-min(4, count), 0)
    layers = (layers,) if isinstance(layers, int) else tuple(layers)
    for layer in layers:
        if not -count <= layer < count:
            raise ValueError(
                f"layers must lie within {-count} and {count - 1} for an encoder of {count} "
                f"layers; received {layer}"
            )
    if not layers:
        raise ValueError("layers must name at least one layer; received none")
    encoder.trainable = False
    inputs = _inputs(encoder)
    # A frozen encoder's dropout would only blur its vectors.
    outputs = WithoutDropout(encoder, name="without_dropout")(inputs)["encoder_outputs"]
    chosen = [outputs[layer] for layer in layers]
    x = chosen[0]
    if len(chosen) > 1:
        x = ways[combine](dtype=_float_policy(encoder), name="combine")(chosen)
    return keras.Model(inputs, x, name=name)


# What `keras_bert.load(name, task=...)` can build.
TASKS = {
    head.__name__: head
    for head in (
        classifier,
        regressor,
        tagger,
        span_selector,
        multiple_choice,
        masked_lm,
        next_sentence,
        pretraining,
        embedder,
    )
}

# Those that a pretrained model comes with; for a task of its own they make way for a fresh head.
OF_PRETRAINING = ("pretraining", "masked_lm", "next_sentence")


def _input(name):
    return keras.Input(shape=(None,), dtype="int32", name=name)


def _inputs(encoder):
    return {key: _input(key) for key in encoder.input}


def _predicting_encoder(encoder):
    """Inputs, and the encoder's outputs for [CLS] and the positions to predict alone."""
    inputs, wanted = _inputs(encoder), _input("masked_lm_positions")
    return {**inputs, wanted.name: wanted}, encoder({**inputs, "output_positions": wanted})


def _packed_inputs():
    keys = ("input_word_ids", "input_type_ids", "position_ids", "text_ids")
    return {key: _input(key) for key in keys}


def _packed_encoder(encoder, inputs, **optional):
    """The encoder's outputs for rows with several texts; `optional` are more of its inputs."""
    text_ids = inputs["text_ids"]
    same = keras.ops.equal(text_ids[:, :, None], text_ids[:, None, :])  # (batch, seq, seq)
    real = keras.ops.not_equal(text_ids, 0)
    return encoder(
        {
            "input_word_ids": inputs["input_word_ids"],
            "input_mask": keras.ops.cast(real, "int32"),
            "input_type_ids": inputs["input_type_ids"],
            "position_ids": inputs["position_ids"],
            "attention_mask": keras.ops.cast(same & real[:, None, :], "int32"),
            **optional,
        }
    )


def _dense(encoder, x, units, name):
    return keras.layers.Dense(
        units,
        # Not `initializer`: this layer's config remembers it.
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=encoder.get_config()["initializer_range"]
        ),
        dtype=_float_policy(encoder),
        name=name,
    )(x)


def _dropout_and_dense(encoder, x, units, dropout):
    if dropout is None:
        dropout = encoder.get_config()["hidden_dropout_prob"]
    x = Dropout(dropout, dtype=_float_policy(encoder), name="dropout")(x)
    return _dense(encoder, x, units, "logits")


def _masked_lm_logits(encoder, x):
    config = encoder.get_config()
    head = MaskedLMHead(
        vocab_size=config["vocab_size"],
        hidden_act=config["hidden_act"],
        layer_norm_eps=config["layer_norm_eps"],
        initializer_range=config["initializer_range"],
        dtype=_float_policy(encoder),
        name="masked_lm",
    )
    return head(x["sequence_output"])


def _float_policy(encoder):
    """The policy that a new layer on an encoder takes; that of a quantized one is a map."""
    policy = encoder.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy.default_policy
    return policy


def _check_labels(what, count, labels, least):
    """The labels as strings, checked."""
    if labels is None:
        labels = [str(index) for index in range(count or 0)]
    labels = [str(label) for label in labels]
    if count is not None and len(labels) != count:
        raise ValueError(f"{what} for {count} classes needs as many labels; received {len(labels)}")
    if len(labels) < least:
        raise ValueError(f"{what} needs at least {least} classes; received {len(labels)}")
    repeated = [label for label, count in collections.Counter(labels).items() if count > 1]
    if repeated:
        raise ValueError(f"each label may occur once; received {repeated[0]!r} twice")
    for label in labels:
        check_label(label)
    return labels


def check_label(label):
    """Raises for what is no label: they are lines of labels.txt and fields of TSV files.

    Args:
        label: a string.

    Raises:
        ValueError: it is empty, holds a tab, a line end or NUL, or is no Unicode.

    Example:

    >>> check_label("B-PER")
    """
    if not label or set(label) & set("\t\r\n\0"):
        raise ValueError(
            f"a label is neither empty nor holds tabs, line ends or NUL; received {label!r:.80}"
        )
    if any("\ud800" <= character <= "\udfff" for character in label):
        raise ValueError(f"a label is Unicode without half pairs; received {label!r:.80}")


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


def find_task(model):
    """Finds out which head built a model.

    Args:
        model: a `keras.Model`.

    Returns:
        A key of `TASKS`, or `None` if the model ends in something else.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_task(pretraining(encoder)), find_task(encoder)
    ('pretraining', None)
    """
    if find_output(model) is None:
        return None
    tasks = {layer.task for layer in model.layers if isinstance(layer, TaskOutput)}
    return "pretraining" if tasks == {"masked_lm", "next_sentence"} else tasks.pop()
