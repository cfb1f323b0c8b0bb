"""Answers and scores of a fine-tuned model."""

import keras
import numpy as np

from keras_bert import heads
from keras_bert.data.batching import LENGTHS, Batches
from keras_bert.data.tabular import Examples
from keras_bert.encoder import BertEncoder
from keras_bert.tasks import registry
from keras_bert.tasks.classification import EncodedTexts


def answers(
    model, examples, *, batch_size=32, max_length=None, encoded=None, on_batch=None, **options
):
    """What a model answers.

    Args:
        model: with a head of `keras_bert.heads`, its encoder with a preprocessor.
        examples: the data of its task; labels do not matter.
        batch_size: sequences a batch.
        max_length: positions at which sequences are cut; default: the preprocessor's
            `max_sequence_length`.
        encoded: what `encode` made of the examples, where that is at hand; then `max_length` says
            nothing.
        on_batch: called after each batch with the share of the work that it was.
        **options: of the task's `decode`.

    Returns:
        One answer for each example, as the task's `decode` makes them: for a classifier
        float32 probabilities (n, classes), for a regressor numbers (n,), for a tagger a list of
        (tag, probability) for each word, for questions dicts with `text`, `start`, `end` and
        `score`, for choices the probability of each.

    Raises:
        ValueError: the model has no vocabulary or no task, or reads other data.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> answers(heads.classifier(encoder, 2), Examples(["good", "bad"])).shape
    (2, 2)
    """
    encoded = encode(model, examples, max_length) if encoded is None else encoded
    outputs = run(model, encoded, batch_size=batch_size, on_batch=on_batch)
    return registry.for_model(model).decode(model, examples, encoded, outputs, **options)


def encode(model, examples, max_length=None):
    """The examples as the model reads them.

    Args:
        model, examples, max_length: as for `answers`.

    Returns:
        What the task's `encode` makes, for `run`, and for `counts`.

    Raises:
        ValueError: as for `answers`.
    """
    task = registry.for_model(model)
    if registry.for_data(examples) is not task:
        raise ValueError(
            f"{model.name!r} does not read {type(examples).__name__}; {examples.source} has those"
        )
    if not len(examples):
        raise ValueError(f"{examples.source}: holds no examples")
    return task.encode(model, examples, length_limit(model, max_length))


def counts(encoded):
    """How much of the data a model does not see, or cannot learn from.

    Args:
        encoded: from `encode`.

    Returns:
        A dict of those there are any of: `truncated` texts; texts `without_pieces` and
        `words_without_pieces`, empty or invisible; `cut_words`, `cut_questions` and
        `cut_answers`, longer than a window, and `invisible_answers`.

    Example:

    >>> from types import SimpleNamespace
    >>> counts(SimpleNamespace(truncated=2, without_pieces=0))
    {'truncated': 2}
    """
    names = (
        "truncated", "without_pieces", "words_without_pieces", "cut_words", "cut_questions",
        "cut_answers", "invisible_answers",
    )  # fmt: skip
    return {name: count for name in names if (count := getattr(encoded, name, 0))}


def length_limit(model, max_length=None):
    """Where a model's sequences are cut, in positions.

    Args:
        model: its encoder with a preprocessor.
        max_length: what is wanted; `None`: the preprocessor's `max_sequence_length`.

    Returns:
        The length, at most the encoder's `max_position_embeddings`.

    Raises:
        ValueError: the encoder has no preprocessor.
    """
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(f"the encoder of {model.name!r} has no preprocessor to read text with")
    longest = encoder.get_config()["max_position_embeddings"]
    return min(max_length or encoder.preprocessor.max_sequence_length, longest)


def run(model, encoded, *, batch_size=32, on_batch=None):
    """The model's outputs for encoded sequences, longest first in batches of like lengths.

    Args:
        model: a `keras.Model`.
        encoded: what `batches.Batches` takes.
        batch_size: sequences a batch.
        on_batch: called after each batch with the share of the work that it was.

    Returns:
        A list with the outputs for each sequence, in order: arrays, or dicts of arrays.
    """
    lengths = LENGTHS if keras.backend.backend() == "jax" else None
    batches = Batches(encoded, batch_size, lengths=lengths)
    results = [None] * len(encoded)
    for index, rows in enumerate(batches.rows):
        outputs = model.predict_on_batch(batches[index][0])
        for place, row in enumerate(rows):
            results[row] = keras.tree.map_structure(lambda array: array[place], outputs)  # noqa: B023
        if on_batch:
            on_batch(len(rows) / len(encoded))
    return results


def evaluate(model, examples, **options):
    """Scores a model on labelled data.

    Args:
        model: with a head of `keras_bert.heads`.
        examples: the data of its task, with labels.
        **options: of `answers`.

    Returns:
        A dict of metrics, the first the one that counts, see the task's `score`.

    Raises:
        ValueError: as for `answers`, or there are no labels.
    """
    if not is_labelled(examples):
        raise ValueError(f"{examples.source}: has no labels to compare with")
    return registry.for_model(model).score(model, examples, answers(model, examples, **options))


def is_labelled(examples):
    """Whether examples of any task carry what the model should answer.

    Example:

    >>> is_labelled(Examples(["a"])), is_labelled(Examples(["a"], scores=[1]))
    (False, True)
    """
    columns = ("labels", "label_sets", "scores", "tags", "answers")
    return any(getattr(examples, column, None) is not None for column in columns)


def classify(model, texts, text_pairs=None, **options):
    """Labels of texts.

    Args:
        model: from `heads.classifier`, its encoder with a preprocessor.
        texts: list of strings.
        text_pairs: list of as many, for a model of pairs.
        **options: of `answers`.

    Returns:
        A list of (label, score), the score a probability.

    Raises:
        ValueError: as for `answers`, or the model has no labels of this kind.
    """
    output = heads.find_output(model)
    if output is None or output.task != "classifier" or output.multi_label:
        raise ValueError(f"{model.name!r} must be a classifier with one label for each text")
    examples = Examples(texts, text_pairs, source="the call")
    if not len(examples):
        return []
    rows = answers(model, examples, **options)
    labels = output.labels
    return [(labels[row.argmax()], float(row.max())) for row in np.asarray(rows)]


def encode_texts(model, texts):
    """Single texts as any model on an encoder reads them.

    Args:
        model: its encoder with a preprocessor.
        texts: list of strings.

    Returns:
        The `texts.EncodedTexts`, for `embed` and `counts`.

    Raises:
        ValueError: a model without an encoder, or an encoder without a preprocessor.
    """
    limit = length_limit(model)
    return EncodedTexts(heads.find_encoder(model).preprocessor, Examples(texts), limit)


def as_embedder(model, pooling=None):
    """The model that `embed` asks, for the same arguments."""
    output = heads.find_output(model)
    if output is not None and output.task == "embedder":
        own = model.get_layer("pooling").mode
        if pooling not in (None, own):
            raise ValueError(f"{model.name!r} has the pooling {own!r}; received {pooling!r}")
        return model
    if output is None and not isinstance(model, BertEncoder):
        raise ValueError(
            f"{model.name!r} has an output of its own, which its `predict` gives; embed takes an "
            "encoder or a model from heads.embedder"
        )
    return heads.embedder(heads.find_encoder(model), pooling=pooling or "mean")


def embed(model, texts, *, pooling=None, batch_size=32, encoded=None, on_batch=None):
    """A vector for each text.

    Args:
        model: from `heads.embedder`; or an encoder, or a model with another head, whose encoder
            is given that head.
        texts: list of strings.
        pooling: of the head that an encoder is given, `"mean"` by default, `"cls"` or `"max"`.
        batch_size: texts a batch.
        encoded: from `encode_texts`, where that is at hand.
        on_batch: called after each batch with the share of the work that it was.

    Returns:
        float32 (n, hidden), each of length 1 unless the head says otherwise.

    Raises:
        ValueError: a model without an encoder, an encoder without a preprocessor, a model that
            ends in something of its own, as `heads.features`, or in another pooling.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> embed(encoder, ["good", "bad", ""]).shape
    (3, 4)
    """
    model = as_embedder(model, pooling)
    encoded = encode_texts(model, texts) if encoded is None else encoded
    vectors = run(model, encoded, batch_size=batch_size, on_batch=on_batch)
    return np.reshape(np.array(vectors, np.float32), (len(texts), model.output_shape[-1]))
