"""Inference with fine-tuned models: answers, metrics and embeddings."""

import keras
import numpy as np

from keras_bert import heads
from keras_bert.data.batching import LENGTHS, Batches
from keras_bert.data.examples import Examples
from keras_bert.encoder import BertEncoder
from keras_bert.tasks import masked_lm, registry
from keras_bert.tasks.classification import EncodedTexts


def answers(
    model, examples, *, batch_size=32, max_length=None, encoded=None, on_batch=None, **options
):
    """Return the answers of a model.

    Args:
        model: A model of `keras_bert.heads` whose encoder has a preprocessor.
        examples: The data of its task, with or without labels.
        batch_size: Sequences per batch.
        max_length: Maximum length of a sequence; by default the preprocessor's
            `max_sequence_length`.
        encoded: The examples as encoded by `encode`; then `max_length` is not used.
        on_batch: Called after each batch with the fraction of the sequences in it.
        **options: Options of the task's `decode`.

    Returns:
        One answer per example, from the task's `decode`: for a classifier the probabilities,
        float32 (n, classes); for a regressor the scores, float32 (n,); for a tagger a list of
        pairs of tag and probability, one per word; for question answering a dict with `text`,
        `start`, `end` and `score`; for multiple choice the probability of each choice.

    Raises:
        ValueError: If the model has no preprocessor or no task, or takes other data.

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
    """Encode examples for a model.

    Args:
        model, examples, max_length: As in `answers`.

    Returns:
        The encoded sequences, for `run`, `answers` and `counts`.

    Raises:
        ValueError: As in `answers`.
    """
    task = registry.for_model(model)
    if registry.for_data(examples) is not task:
        raise ValueError(
            f"{model.name!r} does not take {type(examples).__name__}; received {examples.source}"
        )
    if not len(examples):
        raise ValueError(f"{examples.source}: holds no examples")
    return task.encode(model, examples, length_limit(model, max_length))


def counts(encoded):
    """Return how much of the data a model does not see or cannot learn from.

    Args:
        encoded: From `encode`.

    Returns:
        A dict of counts above 0, of: `truncated` texts; texts `without_tokens` and
        `words_without_tokens`, which have no tokens; `cut_words`, `cut_questions` and
        `cut_answers`, which are longer than a window; `invisible_answers`, which have no tokens.

    Example:

    >>> from types import SimpleNamespace
    >>> counts(SimpleNamespace(truncated=2, without_tokens=0))
    {'truncated': 2}
    """
    names = (
        "truncated", "without_tokens", "words_without_tokens", "cut_words", "cut_questions",
        "cut_answers", "invisible_answers",
    )  # fmt: skip
    return {name: count for name in names if (count := getattr(encoded, name, 0))}


def length_limit(model, max_length=None):
    """Return the maximum length of a model's sequences.

    Args:
        model: A model whose encoder has a preprocessor.
        max_length: The wanted length; `None` for the preprocessor's `max_sequence_length`.

    Returns:
        The length, at most the encoder's `max_position_embeddings`.

    Raises:
        ValueError: If the encoder has no preprocessor.
    """
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor; set its `preprocessor`"
        )
    longest = encoder.get_config()["max_position_embeddings"]
    return min(max_length or encoder.preprocessor.max_sequence_length, longest)


def run(model, encoded, *, batch_size=32, on_batch=None):
    """Return the outputs of a model for encoded sequences.

    Args:
        model: A `keras.Model`.
        encoded: Encoded sequences, see `data.batching`.
        batch_size: Sequences per batch.
        on_batch: Called after each batch with the fraction of the sequences in it.

    Returns:
        A list with the outputs for each sequence, in order: arrays, or dicts of arrays.
    """
    lengths = LENGTHS if keras.backend.backend() == "jax" else None
    batches = Batches(encoded, batch_size, lengths=lengths)
    results = [None] * len(encoded)
    for index, rows in enumerate(batches.rows):
        outputs = model.predict_on_batch(batches[index][0])
        for index_in_batch, row in enumerate(rows):
            results[row] = keras.tree.map_structure(lambda array: array[index_in_batch], outputs)  # noqa: B023
        if on_batch:
            on_batch(len(rows) / len(encoded))
    return results


def evaluate(model, examples, **options):
    """Score a model on labeled data.

    Args:
        model: A model of `keras_bert.heads`.
        examples: The data of its task, with labels.
        **options: Options of `answers`.

    Returns:
        A dict of metrics, the main one first, see the task's `score`.

    Raises:
        ValueError: As in `answers`, or if there are no labels.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model = heads.classifier(encoder, labels=["no", "yes"])
    >>> list(evaluate(model, Examples(["good", "bad"], labels=["yes", "no"])))
    ['accuracy', 'f1', 'mcc', 'majority']
    """
    if not is_labeled(examples):
        raise ValueError(f"{examples.source}: has no labels to score against")
    return registry.for_model(model).score(model, examples, answers(model, examples, **options))


def is_labeled(examples):
    """Return True if examples, of any task, have labels.

    Example:

    >>> is_labeled(Examples(["a"])), is_labeled(Examples(["a"], scores=[1]))
    (False, True)
    """
    columns = ("labels", "label_sets", "scores", "tags", "answers")
    return any(getattr(examples, column, None) is not None for column in columns)


def predict(model, inputs, **options):
    """Return the predictions of a model with any head.

    Args:
        model: A model of `keras_bert.heads`, or a `BertEncoder`.
        inputs: A list of strings for a classifier with one label per text, a masked language
            model, an embedder or an encoder; otherwise the examples of the model's task, with or
            without labels.
        **options: Options of `classify`, `masked_lm.fill`, `embed` or `answers`.

    Returns:
        For strings: a list of (label, score) of a classifier, see `classify`; candidates for each
        [MASK], see `masked_lm.fill`; or vectors (n, hidden), see `embed`. For examples: see
        `answers`.

    Raises:
        ValueError: If the model has no preprocessor, or takes other inputs.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> [(label, score)] = predict(heads.classifier(encoder, labels=["no", "yes"]), ["good"])
    >>> label in ("no", "yes"), predict(encoder, ["good"]).shape
    (True, (1, 4))
    """
    task = heads.find_task(model)
    if task in ("masked_lm", "pretraining"):
        return masked_lm.fill(model, inputs, **options)
    if task == "embedder" or isinstance(model, BertEncoder):
        return embed(model, inputs, **options)
    if not isinstance(inputs, (list, tuple)):
        return answers(model, inputs, **options)
    if task == "classifier" and not heads.find_output(model).multi_label:
        return classify(model, inputs, **options)
    return answers(model, Examples(list(inputs), source="the inputs"), **options)


def classify(model, texts, text_pairs=None, **options):
    """Return the most probable label of each text.

    Args:
        model: From `heads.classifier`; its encoder has a preprocessor.
        texts: List of strings.
        text_pairs: List of strings of the same length, for a model of pairs.
        **options: Options of `answers`.

    Returns:
        A list of pairs of a label and its probability.

    Raises:
        ValueError: As in `answers`, or if the model does not predict one label per text.
    """
    output = heads.find_output(model)
    if output is None or output.task != "classifier" or output.multi_label:
        raise ValueError(f"{model.name!r} must be a classifier with one label per text")
    examples = Examples(texts, text_pairs, source="the call")
    if not len(examples):
        return []
    rows = answers(model, examples, **options)
    labels = output.labels
    return [(labels[row.argmax()], float(row.max())) for row in np.asarray(rows)]


def encode_texts(model, texts):
    """Encode single texts for any model on an encoder.

    Args:
        model: A model whose encoder has a preprocessor.
        texts: List of strings.

    Returns:
        The `EncodedTexts`, for `embed` and `counts`.

    Raises:
        ValueError: If the model has no encoder, or the encoder no preprocessor.
    """
    limit = length_limit(model)
    return EncodedTexts(heads.find_encoder(model).preprocessor, Examples(texts), limit)


def as_embedder(model, pooling=None):
    """Return the embedder that `embed` uses for a model, with the same arguments and errors."""
    output = heads.find_output(model)
    if output is not None and output.task == "embedder":
        own = model.get_layer("pooling").mode
        if pooling not in (None, own):
            raise ValueError(f"{model.name!r} has the pooling {own!r}; received {pooling!r}")
        return model
    if output is None and not isinstance(model, BertEncoder):
        raise ValueError(
            f"{model.name!r} has a custom output, use its `predict` method; embed takes an "
            "encoder or a model of heads.embedder"
        )
    return heads.embedder(heads.find_encoder(model), pooling=pooling or "mean")


def embed(model, texts, *, pooling=None, batch_size=32, encoded=None, on_batch=None):
    """Return an embedding of each text.

    Args:
        model: From `heads.embedder`, or an encoder, or a model with another head; of these, the
            encoder is used with a new embedder head.
        texts: List of strings.
        pooling: Pooling of the new head: `"mean"` (the default), `"cls"` or `"max"`.
        batch_size: Texts per batch.
        encoded: The texts as encoded by `encode_texts`.
        on_batch: Called after each batch with the fraction of the sequences in it.

    Returns:
        float32 (n, hidden), normalized to length 1 unless the embedder head has
        `normalize=False`.

    Raises:
        ValueError: If the model has no encoder, the encoder has no preprocessor, the model has a
            custom output, such as that of `heads.features`, or the model is an embedder with
            another pooling.

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
