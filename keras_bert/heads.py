"""Task heads: functions that build a functional `keras.Model` on an encoder.

The last layer of each model is a `TaskOutput`. It returns the logits in float32 and keeps the task
and the labels, so a reloaded model has them too.
"""

from collections.abc import Sequence

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import TaskOutput, WeightedSum, WithoutDropout
from keras_bert.model_structure import (
    find_encoder,
    find_output,
    find_task,
    max_sequence_length,
    preprocessor_of,
)
from keras_bert.runtime.escaping import shown
from keras_bert.tasks.classification.head import classifier, next_sentence, regressor
from keras_bert.tasks.embedding.head import embedder, siamese
from keras_bert.tasks.head_parts import check_encoder, encoder_inputs, float_policy
from keras_bert.tasks.masked_tokens.head import masked_lm, pretraining
from keras_bert.tasks.multiple_choice.head import multiple_choice
from keras_bert.tasks.question_answering.head import span_selector, without_padding
from keras_bert.tasks.reranking.head import reranker
from keras_bert.tasks.sparse_embedding.head import sparse_embedder
from keras_bert.tasks.tagging.head import tagger
from keras_bert.token_model import TokenModel

__all__ = [
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
    "reranker",
    "siamese",
    "span_selector",
    "sparse_embedder",
    "tagger",
    "with_text",
    "without_padding",
]


def features(
    encoder: BertEncoder,
    layers: Sequence[int] | None = None,
    combine: str = "concat",
    *,
    name: str = "features",
) -> keras.Model:
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
        ValueError: If `combine` is unknown.
        IndexError: If a layer does not exist.

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
        raise ValueError(f"combine must be one of {', '.join(ways)}; received {shown(combine)}")
    check_encoder(encoder)
    count = encoder.bert_config["num_hidden_layers"]
    if layers is None:
        layers = range(-min(4, count), 0)
    layers = [layers] if isinstance(layers, int) else list(layers)
    encoder = encoder.with_options(trainable=False)
    inputs = encoder_inputs(encoder)
    outputs = WithoutDropout(encoder, name="without_dropout")(inputs)["encoder_outputs"]
    chosen = [outputs[layer] for layer in layers]
    x = chosen[0]
    if len(chosen) > 1:
        x = ways[combine](dtype=float_policy(encoder), name="combine")(chosen)
    return TokenModel(inputs, x, name=name)


def with_text(model: keras.Model, *, name: str = "with_text") -> keras.Model:
    """Build a model that takes strings, for `fit`, `predict` and export on TensorFlow.

    Args:
        model: A model of `classifier`, `regressor`, `next_sentence` or `embedder`, whose encoder
            has a preprocessor. It is shared, not copied.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from strings `text` (batch,), for pairs a dict of `text` and
        `text_pair`, to the outputs of the model. Texts are padded to the longest of their batch.

    Raises:
        ValueError: If the backend is not TensorFlow, the model has another head, a default prompt
            or `long_texts="window"`, or the encoder has no preprocessor.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model = with_text(classifier(encoder, 2))
    >>> model.predict(keras.ops.convert_to_tensor(["good", "bad"]), verbose=0).shape
    (2, 2)
    """
    find_encoder(model)  # raises an error if it is no model
    from keras_bert.tasks import registry  # not at the top: it imports all tasks

    task = registry.find(model)
    if task is None or not task.answers_texts:
        received = None if task is None else task.name
        raise ValueError(f"with_text needs a model with one answer per text; received {received}")
    output = find_output(model)
    if output.default_prompt is not None or output.long_texts == "window":
        raise ValueError(
            "with_text adds no prompt and reads no windows, as this model needs; use "
            "keras_bert.pipeline or export"
        )
    inputs = {
        key: keras.Input(shape=(), dtype="string", name=key) for key in task.inputs_of(output)
    }
    preprocessor = preprocessor_of(model).with_options(
        sequence_length=None, max_sequence_length=max_sequence_length(find_encoder(model))
    )
    packed = preprocessor(*inputs.values())
    given = inputs if len(inputs) > 1 else inputs["text"]
    return keras.Model(given, model(packed), name=name)
