"""Convert models to and from checkpoints in canonical form and models of other libraries."""

import dataclasses
import warnings
from typing import Any

import keras
import numpy as np

from keras_bert import heads
from keras_bert.checkpoints import canonical, keras_hub, model_garden
from keras_bert.checkpoints.added_tokens import word_pieces
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.folder import default_tokenizer
from keras_bert.checkpoints.huggingface_heads import number_of_logits, possible_tasks
from keras_bert.encoder import BertEncoder
from keras_bert.hub import model_weights
from keras_bert.layers import without_initial_weights
from keras_bert.model_spec import HeadSpec, ModelSpec
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.tasks.head_structure import is_built_by
from keras_bert.text.preprocessor import MIN_LENGTH, Preprocessor

_DEFAULT_LENGTH = 128  # tokens


def from_checkpoint(
    checkpoint: Checkpoint,
    task: str | None = None,
    *,
    fresh_head: bool = False,
    sequence_length: int | str | None = "auto",
    dtype: Any = None,
    rematerialize: bool = False,
    hidden_act: str | None = None,
    pooling: str | None = None,
    **head_options: Any,
) -> keras.Model:
    """Build a `BertEncoder`, or the model of the head `task`, from a `checkpoints.Checkpoint`.

    The options are those of `loading.load`. `pooling` is that of the encoder, by default the
    checkpoint's. The encoder has a `preprocessor` if the checkpoint has a vocabulary.
    """
    checkpoint = checkpoint.with_activation(hidden_act)
    if pooling is not None:
        checkpoint = _with_pooling(checkpoint, pooling)
    if task == "auto":
        task = checkpoint.spec.head.task
        if task is None:
            _warn_of_heads(checkpoint)
    if task is None:
        _check_encoder_alone(checkpoint, fresh_head, head_options)
    head_task = None if task is None else registry.by_name(task)
    if task is not None and not fresh_head:
        registry.check_variant(task, checkpoint.spec.head, checkpoint.path)
    fresh = _fresh_groups(checkpoint, head_task, fresh_head)
    has_own_layers = "layers" in head_options
    try:
        with without_initial_weights(model_weights.zeros()):
            model = encoder = _encoder(checkpoint.spec, sequence_length, dtype, rematerialize)
            encoder.fresh_pooler = "pooler" in fresh
            if head_task is not None:
                stored = _stored_options(head_task, checkpoint, fresh_head, head_options)
                options = stored | registry.head_options(str(task)) | head_options
                model = head_task.head_function()(encoder, **options)
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from error
    if has_own_layers:
        checkpoint = checkpoint.without_vector_layers()
    model_weights.assign(model, head_task, checkpoint, fresh)
    return model


def _fresh_groups(checkpoint, task, fresh_head):
    """Return the groups of weights that get random values."""
    groups = set(canonical.HEADS) if fresh_head else set()
    needs_pooler = task is not None and task.uses_pooler and not fresh_head
    if "pooler" not in checkpoint.groups and not needs_pooler:
        groups.add("pooler")
    return groups


def _with_pooling(checkpoint, pooling):
    """Return a checkpoint with another pooling of its encoder, and of its head if it embeds."""
    spec = dataclasses.replace(checkpoint.spec, pooling=pooling)
    if spec.head.task == "embedding":
        spec = spec.with_head(pooling=(pooling,))
    return dataclasses.replace(checkpoint, spec=spec)


def build(spec: ModelSpec) -> keras.Model:
    """Build the model of a description, with random weights: the inverse of `spec_of`."""
    encoder = _encoder(spec, "auto", dtype=None, rematerialize=False)
    if spec.head.task is None:
        return encoder
    task = registry.by_name(spec.head.task)
    model = task.head_function()(encoder, **task.options_of_head(spec.head))
    heads.find_output(model).long_texts = spec.head.long_texts
    return model


def _encoder(spec, sequence_length, dtype, rematerialize):
    """Return the encoder of a description with its preprocessor."""
    max_positions = spec.encoder["max_position_embeddings"]
    if sequence_length == "auto":
        sequence_length = min(_DEFAULT_LENGTH, max_positions)
    check_sequence_length(sequence_length, max_positions)
    encoder = BertEncoder(
        **spec.encoder, pooling=spec.pooling, dtype=dtype, rematerialize=rematerialize
    )
    if spec.vocabulary is not None:
        options = dict(spec.tokenizer)
        max_length = options.pop("sequence_length", None) or max_positions
        encoder.preprocessor = Preprocessor(
            spec.vocabulary,
            sequence_length=sequence_length,
            max_sequence_length=min(max_length, max_positions),
            **options,
        )
    return encoder


def _stored_options(task, checkpoint, fresh_head, given):
    """Return the options of a head that a checkpoint holds; labels are numbers by default.

    `given` are the options of the user.
    """
    head = checkpoint.spec.head
    if fresh_head:
        is_known = head.dropout is not None and "dropout" in task.head_fields
        return {"dropout": head.dropout} if is_known else {}
    if head.labels is None:
        # Without a classifier the number is irrelevant, because loading its weights is an error.
        count = number_of_logits(checkpoint.weights) or 2
        head = dataclasses.replace(head, labels=[str(index) for index in range(count)])
    options = task.options_of_head(head)
    if "num_classes" in given or "num_tags" in given:
        options.pop("labels", None)
    return options


def check_sequence_length(value, max_positions):
    """Raise a `ValueError` unless `value` is None or a length of at most `max_positions` tokens."""
    if value is not None and as_integer("sequence_length", value, MIN_LENGTH) > max_positions:
        rule = f"sequence_length must be at most {max_positions}, the maximum of the model"
        raise ValueError(f"{rule}; received {value}")


def _warn_of_heads(checkpoint):
    """Warn if a checkpoint does not name the head that its weights have."""
    tasks = possible_tasks(checkpoint)
    if tasks:
        known = " or ".join(f"task={task!r}" for task in tasks)
        warnings.warn(
            f"{checkpoint.path} has the weights of a head, and no file says of which task, so only "
            f"the encoder is used. For the head, pass {known}",
            stacklevel=level_of_caller(),
        )


def _check_encoder_alone(checkpoint, fresh_head, head_options):
    """Check that no option is for a head. Warn if its embeddings are not the checkpoint's."""
    if head_options or fresh_head:
        name = next(iter(head_options), "fresh_head")
        raise ValueError(f"{name} needs a task, as in task='tagging', or is no argument of load")
    spec = checkpoint.spec
    if spec.head.task == "embedding" and spec.head != spec.without_head().embedding:
        warnings.warn(
            f"{checkpoint.path} has layers, prompts or other settings of embeddings, which an "
            "encoder does not include. To use them, load it with task='embedding', or pass its "
            "path to keras_bert.pipeline",
            stacklevel=level_of_caller(),
        )


def spec_of(model: keras.Model) -> ModelSpec:
    """Return the description of a model: a `BertEncoder`, or a model of `keras_bert.heads`."""
    encoder = heads.find_encoder(model)
    task = None if model is encoder else registry.find(model)
    if task is None and model is not encoder:
        raise ValueError(f"{model.name!r} must be an encoder or end in a head of keras_bert.heads")
    head = HeadSpec()
    if task is not None:
        head = task.spec_of_head(model)
        if not is_built_by(task, model):
            raise ValueError(
                f"{model.name!r} has other layers than a model of keras_bert.heads for the task "
                f"{task.name}, or other options. Use format='keras'"
            )
    config = {key: encoder.bert_config[key] for key in canonical.CONFIG_KEYS}
    preprocessor = encoder.preprocessor
    return ModelSpec(
        config,
        vocabulary=None if preprocessor is None else _complete_vocabulary(preprocessor, config),
        tokenizer=_tokenizer_options(preprocessor, config["max_position_embeddings"]),
        pooling=encoder.pooling,
        head=head,
    )


def to_checkpoint(model: keras.Model) -> Checkpoint:
    """Return the weights of a model, copied, as a `checkpoints.Checkpoint`.

    The model must be a `BertEncoder` or have a head of `keras_bert.heads`. LoRA weights are added
    to the weights that they adapt. Quantized weights are a ValueError.
    """
    spec = spec_of(model)
    weights = model_weights.read(model, registry.find(model))
    output = heads.find_output(model)
    if output is not None and output.is_standardized:
        _fold_standardization(output, weights)
    unknown = [name for name in weights if not canonical.is_name(name)]
    rule = "weights must be those of BERT, and not quantized; use save with format='keras'"
    canonical.raise_if(model.name, rule, {"unknown": unknown})
    return Checkpoint("", model.name, spec, weights)


def _fold_standardization(output, weights):
    """Multiply the weights of a regressor's last layer, so that its logits are the numbers."""
    scale = np.float32(output.target_scale)
    mean = np.float32(output.target_mean)
    weights["classifier/kernel"] = weights["classifier/kernel"] * scale
    weights["classifier/bias"] = weights["classifier/bias"] * scale + mean


def _tokenizer_options(preprocessor, max_positions):
    """Return `ModelSpec.tokenizer` for a `Preprocessor`, or `None`, of an encoder."""
    if preprocessor is None:
        return default_tokenizer(lowercase=True)
    options = preprocessor.tokenizer_options()
    added = list(options.pop("added_tokens"))  # a list, as in a checkpoint that is read
    if added:
        options["added_tokens"] = added
    # A preprocessor that was given to the encoder may allow more tokens than the encoder takes.
    longest = min(preprocessor.max_sequence_length, max_positions)
    return {**options, "sequence_length": longest}


def from_keras_hub(model: Any, task: str | None = None, **options: Any) -> keras.Model:
    """Build a model with copies of the weights of a KerasHub model.

    That is a `BertBackbone`, `BertTextClassifier` or `BertMaskedLM` of `keras_hub` or `keras_nlp`.
    The options are those of `from_checkpoint`; the default of `task` is the task of the model.
    """
    checkpoint = keras_hub.from_model(model)
    return from_checkpoint(checkpoint, task or checkpoint.spec.head.task, **options)


def to_keras_hub(model: keras.Model, backbone: Any = None) -> Any:
    """Copy the weights of a model's encoder to a `BertBackbone`; `None` creates one.

    KerasHub supports only the tanh gelu and a `layer_norm_eps` of 1e-12.
    """
    return keras_hub.to_backbone(to_checkpoint(heads.find_encoder(model)), backbone)


def from_model_garden(encoder: Any, **options: Any) -> keras.Model:
    """Build an encoder from a `BertEncoder` or `BertEncoderV2` of TensorFlow's Model Garden.

    The weights are copied. The options are those of `from_checkpoint`. There is no preprocessor.
    """
    return from_checkpoint(model_garden.from_encoder(encoder), **options)


def to_model_garden(model: keras.Model, encoder: Any = None) -> Any:
    """Copy the weights of a model's encoder to an encoder of TensorFlow's Model Garden.

    `encoder` is a `BertEncoder` or `BertEncoderV2`; `None` creates a `BertEncoderV2`.
    """
    return model_garden.to_encoder(to_checkpoint(heads.find_encoder(model)), encoder)


def _complete_vocabulary(preprocessor, config):
    """Return the vocabulary with a name for each id, which some libraries need.

    Added tokens at its end stay there, see `added_tokens.word_pieces`.
    """
    vocabulary = list(preprocessor.vocabulary)
    if len(word_pieces(vocabulary, preprocessor.added_tokens)) < len(vocabulary):
        return vocabulary
    known = set(vocabulary)
    for index in range(len(vocabulary), config["vocab_size"]):
        name = f"[unused{index}]"
        vocabulary.append(f"[unnamed{index}]" if name in known else name)
    return vocabulary
