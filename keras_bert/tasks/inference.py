"""Inference with fine-tuned models: encode, run, decode and score."""

import functools
import inspect

import keras

from keras_bert.data.batching import LENGTHS, Batches
from keras_bert.data.examples import Examples
from keras_bert.encoder import BertEncoder
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.arguments import as_integer
from keras_bert.tasks import registry
from keras_bert.tasks.classification import task as classification
from keras_bert.tasks.embedding import task as embedding
from keras_bert.tasks.embedding.head import embedder
from keras_bert.tasks.masked_tokens import task as masked_lm
from keras_bert.tasks.tagging import task as tagging
from keras_bert.tasks.tagging.data import TaggedSentences
from keras_bert.tasks.to_dataset import targets_of
from keras_bert.text.encoded_texts import EncodedTexts


def answers(
    model,
    examples,
    *,
    batch_size=32,
    max_length=None,
    encoded=None,
    on_batch=None,
    on_outputs=None,
    predict=None,
    **options,
):
    """Return one answer per example, from the `decode` of the model's task.

    `max_length` and `encoded` are as in `encode`, the other arguments as in `run`. `options` are
    those of `decode`.
    """
    task = registry.for_model(model)
    if options:
        check_options(examples, options)
    encoded = encode(model, examples, max_length) if encoded is None else encoded
    model = model_for_data(model)
    outputs = run(
        model, encoded, batch_size=batch_size, on_batch=on_batch, on_outputs=on_outputs,
        predict=predict,
    )  # fmt: skip
    return task.decode(model, examples, encoded, outputs, **options)


def check_options(examples, options):
    """Raise an error for an option that the `decode` of the examples' task does not have."""
    task = registry.for_data(examples)
    parameters = inspect.signature(task.decode).parameters.values()
    takes = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    unknown = next((name for name in options if name not in takes), None)
    if unknown is not None:
        raise ValueError(
            f"{unknown} is not an option for {type(examples).__name__}; the options are "
            f"{', '.join(takes) or 'none'}"
        )


def model_for_data(model):
    """Return the model that takes the encoded data of a task: for embedders `heads.siamese`."""
    task = registry.for_model(model)
    return task.model_of_rows(model) if hasattr(task, "model_of_rows") else model


def encode(model, examples, max_length=None, **options):
    """Encode the data of a model's task, for `run`, `answers` and `counts`.

    `max_length` is the maximum length of a sequence, by default the preprocessor's
    `max_sequence_length`. `options` are those of the task's `encode`.
    """
    task = registry.for_model(model)
    if registry.for_data(examples) is not task:
        raise ValueError(
            f"{model.name!r} does not take {type(examples).__name__}; received {examples.source}"
        )
    if not len(examples):
        raise ValueError(f"{examples.source} contains no examples")
    return task.encode(model, examples, length_limit(model, max_length), **options)


def counts(encoded):
    """Return how much of the data a model does not see or cannot learn from.

    Args:
        encoded: From `encode`.

    Returns:
        A dict of counts above 0, of: `truncated` texts; texts `without_tokens` and
        `words_without_tokens`, which have no tokens; `cut_words`, `cut_questions` and
        `cut_answers`, which are longer than a window; `invisible_answers`, which have no tokens.
        For data that is not encoded: `lost_answers` and `moved_answers`, see `data.squad`.

    Example:

    >>> from types import SimpleNamespace
    >>> counts(SimpleNamespace(truncated=2, without_tokens=0))
    {'truncated': 2}
    """
    names = (
        "truncated", "without_tokens", "words_without_tokens", "cut_words", "cut_questions",
        "cut_answers", "invisible_answers", "lost_answers", "moved_answers",
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
    encoder = find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor; set its `preprocessor`"
        )
    longest = encoder.bert_config["max_position_embeddings"]
    if max_length is not None:
        max_length = as_integer("max_length", max_length, 3)
    return min(max_length or encoder.preprocessor.max_sequence_length, longest)


def run(model, encoded, *, batch_size=32, on_batch=None, on_outputs=None, predict=None):
    """Return a list with the outputs for each encoded sequence: arrays, or dicts of arrays.

    `encoded` is as in `data.batching`. After each batch, `on_batch` is called with the fraction of
    the sequences in it, and `on_outputs` with its outputs, targets and weights. `predict` is a
    function from a dict of arrays to the outputs, by default `model.predict_on_batch`.
    """
    lengths = LENGTHS if keras.backend.backend() == "jax" else None
    batches = Batches(encoded, batch_size, lengths=lengths)
    predict = predict or functools.partial(_predict_on_batch, model)
    results = [None] * len(encoded)
    for index, rows in enumerate(batches.rows):
        inputs, *targets_and_weights = batches[index]
        outputs = predict(inputs)
        if on_outputs:
            on_outputs(outputs, *targets_and_weights)
        for index_in_batch, row in enumerate(rows):
            results[row] = keras.tree.map_structure(lambda array: array[index_in_batch], outputs)  # noqa: B023
        if on_batch:
            on_batch(len(rows) / len(encoded))
    return results


def _predict_on_batch(model, inputs):
    """Return the outputs of one replica.

    Under a strategy of TensorFlow, each replica computes the whole batch, and `predict_on_batch`
    concatenates their outputs.
    """
    outputs = model.predict_on_batch(inputs)
    if keras.backend.backend() != "tensorflow":
        return outputs
    copies = model.distribute_strategy.num_replicas_in_sync
    return keras.tree.map_structure(lambda array: array[: len(array) // copies], outputs)


def evaluate(model, examples, **options):
    """Score a model on labeled data.

    Args:
        model: A model of `keras_bert.heads`.
        examples: The data of its task, with labels.
        **options: `batch_size`, `max_length` (tokens), or options of the task: `max_answer_length`
            and `null_threshold` for question answering.

    Returns:
        A dict of metrics, the main one first, see the task's `score`.

    Raises:
        ValueError: As in `answers`, or if there are no labels.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> from keras_bert import heads
    >>> model = heads.classifier(encoder, labels=["no", "yes"])
    >>> list(evaluate(model, Examples(["good", "bad"], labels=["yes", "no"])))
    ['accuracy', 'f1', 'mcc', 'majority']
    """
    check_labeled(examples)
    if "top_k" in options:
        raise ValueError("top_k is not an option of evaluate; remove it")
    found = answers(model, examples, **options)
    return score(find_output(model), examples, found)


def score(output, examples, found, report=False):
    """Return the metrics of answers, with `report` also those of each label.

    `output` is the `TaskOutput` of the model, or the `OnnxOutput` of an ONNX folder.
    """
    check_labeled(examples)
    task = registry.for_data(examples)
    metrics = task.score(output, examples, found)
    if report and hasattr(task, "report") and (rows := task.report(output, examples, found)):
        metrics["report"] = rows
    return metrics


def check_labeled(examples):
    """Raise an error if examples, of any task, have no labels."""
    registry.for_data(examples)
    if not is_labeled(examples):
        raise ValueError(f"{examples.source} has no labels to score against. Give labeled examples")


def check_targets(output, examples):
    """Raise an error if examples of any task have no labels, or labels that the model lacks.

    `output` is as in `score`. The encoding for a Keras model checks this too.
    """
    check_labeled(examples)
    if isinstance(examples, Examples) and output.task in classification.HEADS:
        targets_of(examples, output)
    if isinstance(examples, TaggedSentences) and output.task in tagging.HEADS:
        tagging.targets_of(examples, output.labels)


def is_labeled(examples):
    """Return True if examples, of any task, have labels.

    Example:

    >>> is_labeled(Examples(["a"])), is_labeled(Examples(["a"], scores=[1]))
    (False, True)
    """
    columns = ("labels", "label_sets", "scores", "tags", "answers", "positives", "relevant")
    return any(getattr(examples, column, None) is not None for column in columns)


def encode_texts(model, texts):
    """Encode single texts for any model on an encoder with a preprocessor, as `EncodedTexts`."""
    limit = length_limit(model)
    return EncodedTexts(find_encoder(model).preprocessor.python_tokenizer, [texts], limit)


def encode_masks(model, texts):
    """Encode texts with [MASK] for `heads.masked_lm` or `heads.pretraining`, as `EncodedMasks`."""
    limit = length_limit(model)
    preprocessor = find_encoder(model).preprocessor
    if masked_lm.MASK not in preprocessor.vocabulary:
        raise ValueError(
            f"the vocabulary of {len(preprocessor.vocabulary)} tokens has no {masked_lm.MASK}, "
            "which this task needs"
        )
    return masked_lm.EncodedMasks(texts, preprocessor.python_tokenizer, limit)


def as_embedder(model, pooling=None):
    """Return the embedder for a model: itself, or a new head on its encoder."""
    output = find_output(model)
    if output is not None and output.task == "embedding":
        if len(model.output_shape) != 2:
            raise ValueError(
                f"{model.name!r} is a model of heads.siamese, for training; use its embedder"
            )
        own = model.get_layer("pooling").mode
        if pooling not in (None, own):
            raise ValueError(f"{model.name!r} has the pooling {own!r}; received {pooling!r}")
        return model
    if output is None and not isinstance(model, BertEncoder):
        raise ValueError(
            f"{model.name!r} has a custom output, use its `predict` method; embeddings need an "
            "encoder or a model of heads.embedder"
        )
    encoder = find_encoder(model)
    if pooling is None:
        embedding.warn_of_pooling(encoder)
    return embedder(encoder, pooling=pooling)
