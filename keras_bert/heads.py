"""Task heads: functions that build a functional `keras.Model` on an encoder.

The last layer of each model is a `TaskOutput`. It returns the logits in float32 and keeps the task
and the labels, so a reloaded model has them too.
"""

import collections
import warnings

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import (
    Dropout,
    MaskedLMHead,
    MergeChoices,
    SentencePooling,
    SplitChoices,
    TaskOutput,
    UnitLength,
    WeightedSum,
    WithoutDropout,
)
from keras_bert.model_structure import find_encoder, find_output, find_task
from keras_bert.runtime.escaping import check_name
from keras_bert.runtime.label_types import name_of_type
from keras_bert.runtime.warn import level_of_caller
from keras_bert.token_model import TokenModel

__all__ = [
    "TASKS",
    "TaskOutput",
    "classifier",
    "embedder",
    "features",
    "find_encoder",
    "find_output",
    "find_task",
    "masked_lm",
    "multiple_choice",
    "next_sentence",
    "pretraining",
    "regressor",
    "span_selector",
    "tagger",
    "with_text",
]


def classifier(
    encoder,
    num_classes=None,
    *,
    labels=None,
    pairs=False,
    multi_label=False,
    pooling=None,
    dropout=None,
    name="classifier",
):
    """Build a model that classifies texts or pairs of texts.

    The head is dropout and a dense layer on the text's vector. Fit the model with
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, or, if `multi_label` is True,
    with `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Source: section 4.1 of the paper; `create_model` in google-research/bert
    `run_classifier.py`.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied. Set `encoder.trainable = False` to
            train only the head.
        num_classes: Number of classes, at least 2, or at least 1 if `multi_label` is True.
            Optional if `labels` is given.
        labels: Names of the classes, in the order of the logits. Defaults to "0", "1", ... Results
            have numbers and booleans in their type; exports to TensorFlow have strings.
        pairs: If True, the model reads pairs of texts, and an export of it takes both.
        multi_label: If True, a text can have several classes, or none.
        pooling: How to make the text's vector: `"pooler"`, the [CLS] vector after a dense layer
            with tanh, as in the paper; `"mean"` or `"max"` over the tokens; or `"cls"`, the [CLS]
            vector itself. Defaults to the encoder's `pooling`, and without one to `"pooler"`.
        dropout: Dropout rate of the vector. Defaults to the encoder's
            `hidden_dropout_prob`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's dict of inputs, each (batch, seq), to
        float32 logits (batch, num_classes).

    Raises:
        ValueError: If there are too few classes, a label is repeated or invalid, the number of
            labels is not `num_classes`, or the pooling is unknown.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> classifier(encoder, labels=["bad", "good"]).output_shape
    (None, 2)
    """
    names = _check_labels("a classifier", num_classes, labels, least=1 if multi_label else 2)
    label_type = "str" if labels is None else name_of_type(labels)
    inputs = _inputs(encoder, pairs)
    x = _text_vector(encoder, inputs, pooling)  # (batch, hidden)
    x = _dropout_and_dense(encoder, x, len(names), dropout)  # (batch, num_classes)
    output = TaskOutput(
        "classifier",
        labels=names,
        pairs=pairs,
        multi_label=multi_label,
        label_type=label_type,
        name="output",
    )
    return TokenModel(inputs, output(x), name=name)


def regressor(
    encoder, *, pairs=False, pooling=None, dropout=None, activation=None, name="regressor"
):
    """Build a model that returns a number per text or pair of texts, such as their similarity.

    Fit the model with `keras.losses.MeanSquaredError()`.

    Source: STS-B in section 4.1 of the paper.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        pairs: If True, the model reads pairs of texts.
        pooling: As for `classifier`.
        dropout: Dropout rate of the vector. Defaults to the encoder's `hidden_dropout_prob`.
        activation: Name of a Keras activation of the number, such as `"sigmoid"` for scores from 0
            to 1, or `None`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, 1).

    Raises:
        ValueError: If the pooling or the activation is unknown.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> regressor(encoder, pairs=True).output_shape
    (None, 1)
    """
    inputs = _inputs(encoder, pairs)
    x = _text_vector(encoder, inputs, pooling)  # (batch, hidden)
    x = _dropout_and_dense(encoder, x, 1, dropout)  # (batch, 1)
    output = TaskOutput("regressor", pairs=pairs, activation=activation, name="output")
    return TokenModel(inputs, output(x), name=name)


def tagger(encoder, num_tags=None, *, labels=None, characters=False, dropout=None, name="tagger"):
    """Build a model that labels each token, for example with entities or parts of speech.

    The first token of a word carries the word's label. Give all other tokens the sample weight
    0. Fit the model with `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.

    Source: section 5.3 of the paper.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        num_tags: Number of tags, at least 2. Optional if `labels` is given.
        labels: Names of the tags, in the order of the logits. Defaults to "0", "1", ...
        characters: If True, inference and exports split a text into characters, as for KLUE's
            entities. If False, they split it at whitespace and punctuation.
        dropout: Dropout rate of the vectors. Defaults to the encoder's `hidden_dropout_prob`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 logits
        (batch, seq, num_tags).

    Raises:
        ValueError: If there are fewer than two tags, a label is repeated or invalid, or the number
            of labels is not `num_tags`.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> tagger(encoder, labels=["O", "B-place", "I-place"]).output_shape
    (None, None, 3)
    """
    names = _check_labels("a tagger", num_tags, labels, least=2)
    label_type = "str" if labels is None else name_of_type(labels)
    inputs = _inputs(encoder)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    x = _dropout_and_dense(encoder, x, len(names), dropout)  # (batch, seq, num_tags)
    output = TaskOutput(
        "tagger", labels=names, characters=characters, label_type=label_type, name="output"
    )
    return TokenModel(inputs, output(x), name=name)


def span_selector(encoder, *, no_answer=False, dropout=0.0, name="span_selector"):
    """Build a model that selects the answer to a question: its first and its last token.

    The input is [CLS] question [SEP] context [SEP]. Fit it with
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)` for both outputs. If there is
    no answer, both targets are 0, the position of [CLS].

    Source: sections 4.2 and 4.3 of the paper; `create_model` in google-research/bert
    `run_squad.py`, which has no dropout here.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        no_answer: If True, a question can have no answer (SQuAD 2).
        dropout: Dropout rate of the vectors.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to a dict of float32 logits
        `start_logits` and `end_logits`, each (batch, seq).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> sorted(span_selector(encoder).output)
    ['end_logits', 'start_logits']
    """
    inputs = _inputs(encoder, pairs=True)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    x = _dropout_and_dense(encoder, x, 2, dropout)  # (batch, seq, 2)
    output = TaskOutput(
        "span_selector",
        pairs=True,
        no_answer=no_answer,
        names=("start_logits", "end_logits"),
        name="output",
    )
    return TokenModel(inputs, output(x), name=name)


def multiple_choice(encoder, *, dropout=None, name="multiple_choice"):
    """Build a model that scores several continuations of a text.

    Fit it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.

    Source: section 4.4 of the paper (SWAG).

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        dropout: Dropout rate of the pooled vectors. Defaults to the encoder's
            `hidden_dropout_prob`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from a dict with the names of the encoder's inputs, each
        (batch, choices, seq), to float32 logits (batch, choices).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> ids = keras.ops.ones((2, 4, 7), dtype="int32")
    >>> tuple(multiple_choice(encoder)(dict.fromkeys(encoder.input, ids)).shape)
    (2, 4)
    """
    _check_pair_encoder(encoder)
    inputs = {
        key: keras.Input(shape=(None, None), dtype="int32", name=key) for key in encoder.input
    }
    merged = {key: MergeChoices(name=f"merge_{key}")(value) for key, value in inputs.items()}
    x = _pooled_output(encoder, encoder(merged))  # (batch * choices, hidden)
    x = _dropout_and_dense(encoder, x, 1, dropout)  # (batch * choices, 1)
    x = SplitChoices(name="split_choices")(x, inputs["input_word_ids"])  # (batch, choices)
    return TokenModel(inputs, TaskOutput("multiple_choice", name="output")(x), name=name)


def masked_lm(encoder, *, tied=True, name="masked_lm"):
    """Build a model that predicts masked tokens.

    Source: section 3.1 of the paper, task 1.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        tied: If True, the output matrix is the variable of the encoder's word embeddings, also
            after a reload. If False, the head has its own matrix.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs and `masked_lm_positions`, int32
        (batch, predictions), to float32 logits (batch, predictions, vocab_size).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> masked_lm(encoder).output_shape
    (None, None, 9)
    """
    inputs, x = _encode_for_masked_lm(encoder)
    logits = _masked_lm_logits(encoder, x, tied)
    return TokenModel(inputs, TaskOutput("masked_lm", name="output")(logits), name=name)


def next_sentence(encoder, *, name="next_sentence"):
    """Build a model that predicts whether the second text follows the first (0) or not (1).

    Source: section 3.1 of the paper, task 2; `get_next_sentence_output` in google-research/bert
    `run_pretraining.py`.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 logits (batch, 2).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_output(next_sentence(encoder)).labels
    ['next', 'random']
    """
    inputs = _inputs(encoder, pairs=True)
    x = _pooled_output(encoder, encoder(inputs))  # (batch, hidden)
    x = _dense(encoder, x, 2, "next_sentence")  # (batch, 2)
    output = TaskOutput("next_sentence", labels=["next", "random"], pairs=True, name="output")
    return TokenModel(inputs, output(x), name=name)


def pretraining(encoder, *, tied=True, name="pretraining"):
    """Build a model with both pretraining heads: masked tokens and next sentence.

    Source: section 3.1 of the paper.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        tied: As for `masked_lm`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs and `masked_lm_positions`, int32
        (batch, predictions), to a dict of float32 logits: `masked_lm` (batch, predictions,
        vocab_size) and `next_sentence` (batch, 2).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> {key: value.shape for key, value in pretraining(encoder).output.items()}
    {'masked_lm': (None, None, 9), 'next_sentence': (None, 2)}
    """
    _check_pair_encoder(encoder)
    inputs, x = _encode_for_masked_lm(encoder)
    outputs = {
        "masked_lm": _masked_lm_logits(encoder, x, tied),
        "next_sentence": _dense(encoder, _pooled_output(encoder, x), 2, "next_sentence"),
    }
    outputs = {
        task: TaskOutput(task, pairs=True, name=f"{task}_output")(logits)
        for task, logits in outputs.items()
    }
    return TokenModel(inputs, outputs, name=name)


def embedder(
    encoder,
    *,
    pooling=None,
    layers=(),
    normalize=True,
    prompts=None,
    default_prompt=None,
    similarity="cosine",
    name="embedder",
):
    """Build a model that returns a vector per text, for comparing texts.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        pooling: A mode of `layers.SentencePooling`, such as `"mean"`, `"cls"` or `"max"`, or a list
            of modes. Defaults to the encoder's `pooling`, and without one to `"mean"`.
        layers: Keras layers for the pooled vectors, such as `[keras.layers.Dense(128)]`.
        normalize: If True, scale vectors to length 1, so that their dot product is the cosine.
        prompts: Dict from names to texts that come before each text, for example
            `{"query": "query: "}`.
        default_prompt: Name of the prompt that is used by default.
        similarity: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`; how to compare vectors.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, width), where width
        is that of the last layer.

    Raises:
        ValueError: If the pooling or the similarity is unknown.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> embedder(encoder).output_shape
    (None, 4)
    >>> embedder(encoder, pooling=["cls", "mean"], layers=[keras.layers.Dense(3)]).output_shape
    (None, 3)
    """
    inputs = _inputs(encoder)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    pooling = pooling or encoder.pooling or "mean"
    layers = list(layers)
    x = SentencePooling(pooling, normalize and not layers, name="pooling")(x, inputs["input_mask"])
    for layer in layers:
        x = layer(x)
    if normalize and layers:
        x = UnitLength(name="normalize")(x)
    output = TaskOutput(
        "embedder", prompts=prompts, default_prompt=default_prompt, similarity=similarity,
        name="output",
    )  # fmt: skip
    return TokenModel(inputs, output(x), name=name)


def siamese(model, *, name="siamese"):
    """Build a model that embeds rows of texts, such as queries with their answers, for training.

    Fit it with a loss of `keras_bert.losses`. It shares the weights of the embedder.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3.

    Args:
        model: A model of `embedder`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs, each int32 (batch, texts, seq), to
        float32 (batch, texts, width).

    Raises:
        ValueError: If the model is not one of `embedder`.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> siamese(embedder(encoder)).output_shape
    (None, None, 4)
    """
    is_model = isinstance(model, keras.Model)
    if not is_model or find_task(model) != "embedder" or len(model.output_shape) != 2:
        received = model.name if is_model else model
        raise ValueError(f"siamese needs a model of heads.embedder; received {received!r:.80}")
    encoder, pooling = find_encoder(model), model.get_layer("pooling")
    _check_pair_encoder(encoder)
    inputs = {
        key: keras.Input(shape=(None, None), dtype="int32", name=key) for key in encoder.input
    }
    merged = {key: MergeChoices(name=f"merge_{key}")(value) for key, value in inputs.items()}
    x = pooling(encoder(merged)["sequence_output"], merged["input_mask"])
    *layers, output = model.layers[model.layers.index(pooling) + 1 :]
    for layer in layers:
        x = layer(x)
    split = SplitChoices(keep_width=True, name="split_texts")
    x = split(x, inputs["input_word_ids"])  # (batch, texts, width)
    output = TaskOutput.from_config(output.get_config())
    return TokenModel(inputs, output(x), name=name)


def features(encoder, layers=None, combine="concat", *, name="features"):
    """Build a model that returns vectors of a frozen copy of an encoder, without dropout.

    Source: section 5.3 and table 7 of the paper.

    Args:
        encoder: A `BertEncoder`. It is copied, and the copy is not trainable.
        layers: Index or indices of layers, from 0 to `num_hidden_layers` - 1; negative indices
            count from the last layer. Defaults to the last four layers, or to all if there are
            fewer.
        combine: `"concat"`, `"sum"`, `"mean"`, or `"weighted_sum"` with learned weights.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to (batch, seq, hidden); with
        `"concat"` to (batch, seq, hidden * number of layers).

    Raises:
        ValueError: If a layer does not exist, or `combine` is unknown.

    Example:

    >>> from keras_bert import BertEncoder
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
        raise ValueError(f"combine must be one of {', '.join(ways)}; received {combine!r:.80}")
    _check_encoder(encoder)
    layers = _check_layers(layers, encoder.get_config()["num_hidden_layers"])
    encoder = encoder.with_options(trainable=False)
    inputs = _inputs(encoder)
    outputs = WithoutDropout(encoder, name="without_dropout")(inputs)["encoder_outputs"]
    chosen = [outputs[layer] for layer in layers]
    x = chosen[0]
    if len(chosen) > 1:
        x = ways[combine](dtype=_float_policy(encoder), name="combine")(chosen)
    return TokenModel(inputs, x, name=name)


def with_text(model, *, name="with_text"):
    """Build a model that takes strings, for `fit`, `predict` and export on TensorFlow.

    Args:
        model: A model of `classifier`, `regressor`, `next_sentence` or `embedder`, whose encoder
            has a preprocessor. It is shared, not copied.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from strings `text` (batch,), for pairs a dict of `text` and
        `text_pair`, to the outputs of the model. Texts are padded to the longest of their batch.

    Raises:
        ValueError: If the backend is not TensorFlow, the model has another head, or the encoder
            has no preprocessor.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model = with_text(classifier(encoder, 2))
    >>> model.predict(keras.ops.convert_to_tensor(["good", "bad"]), verbose=0).shape
    (2, 2)
    """
    task, preprocessor = find_task(model), find_encoder(model).preprocessor
    if task not in ("classifier", "regressor", "next_sentence", "embedder"):
        raise ValueError(f"with_text needs a model with one answer per text; received {task}")
    if preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r:.80} has no preprocessor; set `preprocessor`"
        )
    columns = ("text", "text_pair") if find_output(model).pairs else ("text",)
    inputs = {key: keras.Input(shape=(), dtype="string", name=key) for key in columns}
    packed = preprocessor.with_options(sequence_length=None)(*inputs.values())
    given = inputs if len(inputs) > 1 else inputs["text"]
    return keras.Model(given, model(packed), name=name)


# The heads that `keras_bert.load(name, task=...)` can build.
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

# Heads of pretrained models. Fine-tuning replaces them with a new head.
OF_PRETRAINING = ("pretraining", "masked_lm", "next_sentence")


def _input(name):
    return keras.Input(shape=(None,), dtype="int32", name=name)


def _inputs(encoder, pairs=False):
    if pairs:
        _check_pair_encoder(encoder)
    else:
        _check_encoder(encoder)
    return {key: _input(key) for key in encoder.input}


def _check_encoder(encoder):
    if isinstance(encoder, BertEncoder):
        return
    if isinstance(encoder, keras.Model):
        received = f"the model {encoder.name!r}; give the encoder in it, heads.find_encoder(model)"
    else:
        received = f"{encoder!r:.80}. Load one with keras_bert.load"
    raise ValueError(f"encoder must be a BertEncoder; received {received}")


def _check_pair_encoder(encoder):
    """Raise a `ValueError` if an encoder has no segment embedding for a second text."""
    _check_encoder(encoder)
    segments = encoder.bert_config["type_vocab_size"]
    if segments < 2:
        raise ValueError(
            "a model of pairs of texts needs an encoder with a type_vocab_size of at least 2; "
            f"received {segments}. Use a model of single texts, or another encoder"
        )


def _pooled_output(encoder, outputs):
    """Return the output of the pooler; warn if the pooler has random weights."""
    if encoder.fresh_pooler:
        encoder.fresh_pooler = False
        warnings.warn(
            "this head reads the pooler, which has random weights, because the checkpoint has no "
            'pooler. Train the model; or give the encoder pooling="mean" or "cls"',
            stacklevel=level_of_caller(),
        )
    return outputs["pooled_output"]


def _encode_for_masked_lm(encoder):
    """Return the inputs, and the encoder's outputs for [CLS] and the positions to predict."""
    inputs, positions = _inputs(encoder), _input("masked_lm_positions")
    return {**inputs, positions.name: positions}, encoder({**inputs, "output_positions": positions})


def _dense(encoder, x, units, name):
    return keras.layers.Dense(
        units,
        # Not `layers.initializer`: the config of this layer holds its initializer.
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=encoder.get_config()["initializer_range"]
        ),
        dtype=_float_policy(encoder),
        name=name,
    )(x)


def _text_vector(encoder, inputs, pooling):
    """Return one vector per text, (batch, hidden)."""
    pooling = pooling or encoder.pooling or "pooler"
    outputs = encoder(inputs)
    if pooling == "pooler":
        return _pooled_output(encoder, outputs)
    if pooling not in SentencePooling.MODES:
        modes = ", ".join(SentencePooling.MODES)
        raise ValueError(f"pooling must be one of pooler, {modes}; received {pooling!r:.80}")
    layer = SentencePooling(pooling, normalize=False, name="pooling")
    return layer(outputs["sequence_output"], inputs["input_mask"])


def _dropout_and_dense(encoder, x, units, dropout):
    if dropout is None:
        dropout = encoder.get_config()["hidden_dropout_prob"]
    x = Dropout(dropout, dtype=_float_policy(encoder), name="dropout")(x)
    return _dense(encoder, x, units, "logits")


def _masked_lm_logits(encoder, x, tied):
    config = encoder.get_config()
    head = MaskedLMHead(
        vocab_size=config["vocab_size"],
        hidden_act=config["hidden_act"],
        layer_norm_eps=config["layer_norm_eps"],
        initializer_range=config["initializer_range"],
        tied=tied,
        dtype=_float_policy(encoder),
        name="masked_lm",
    )
    return head(x["sequence_output"])


def _float_policy(encoder):
    """Return the dtype policy for a new layer; a quantized encoder has a map of policies."""
    policy = encoder.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy.default_policy
    return policy


def _check_layers(layers, count):
    """Return the indices of layers as a tuple."""
    if layers is None:
        layers = range(-min(4, count), 0)
    layers = (layers,) if isinstance(layers, int) else tuple(layers)
    if not layers:
        raise ValueError("layers must name at least one layer; received none")
    for layer in layers:
        if not -count <= layer < count:
            raise ValueError(
                f"layers must be between {-count} and {count - 1} for an encoder of {count} "
                f"layers; received {layer}"
            )
    return layers


def _check_labels(head, count, labels, least):
    """Return the labels as strings."""
    if isinstance(count, (list, tuple)):
        raise ValueError(f"num_classes must be an integer; give labels={count!r:.80} by name")
    if isinstance(labels, str):
        raise ValueError(f"labels must be a list of strings; received the string {labels!r:.80}")
    if labels is None:
        labels = [str(index) for index in range(count or 0)]
    labels = [str(label) for label in labels]
    if count is not None and len(labels) != count:
        raise ValueError(
            f"{head} with {count} classes needs {count} labels; received {len(labels)}"
        )
    if len(labels) < least:
        raise ValueError(
            f"{head} needs at least {least} classes; received {len(labels)}. Give labels, the "
            "names of the classes, or num_classes"
        )
    repeated = [label for label, count in collections.Counter(labels).items() if count > 1]
    if repeated:
        raise ValueError(f"labels must be unique; received {repeated[0]!r:.80} more than once")
    for label in labels:
        check_name(label, "a label")
    return labels
