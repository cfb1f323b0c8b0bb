"""Convert models to and from checkpoints in canonical form and models of other libraries."""

import dataclasses
import warnings
from typing import Any

import keras
import numpy as np

from keras_bert import heads
from keras_bert.checkpoints import canonical, keras_hub, model_garden
from keras_bert.checkpoints.added_tokens import word_pieces
from keras_bert.checkpoints.canonical import Checkpoint, DenseLayer, EmbeddingModules, NormLayer
from keras_bert.checkpoints.folder import default_tokenizer
from keras_bert.checkpoints.huggingface_heads import possible_tasks
from keras_bert.encoder import BertEncoder
from keras_bert.hub import model_weights
from keras_bert.layers import UnitLength, without_initial_weights
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
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
    if task == "auto":
        task = checkpoint.task
        if task is None:
            _warn_of_heads(checkpoint)
    if task is None and (head_options or fresh_head):
        name = next(iter(head_options), "fresh_head")
        raise ValueError(f"{name} needs a task, as in task='tagging', or is no argument of load")
    embedding = checkpoint.embedding
    if task is None and embedding is not None:
        _warn_of_modules(checkpoint)
    reads_modules = task is not None and registry.by_name(task).reads_encoders
    if reads_modules and embedding is not None and not fresh_head:
        if pooling is not None:
            embedding = dataclasses.replace(embedding, pooling=(pooling,))
        head_options = _embedder_options(embedding) | head_options
    max_positions = checkpoint.config["max_position_embeddings"]
    if sequence_length == "auto":
        sequence_length = min(_DEFAULT_LENGTH, max_positions)
    check_sequence_length(sequence_length, max_positions)
    config = checkpoint.config | {
        "pooling": pooling or checkpoint.pooling,
        "dtype": dtype,
        "rematerialize": rematerialize,
    }
    try:
        with without_initial_weights(model_weights.zeros()):
            encoder = BertEncoder(**config)
            can_be_fresh = task is None or fresh_head or not registry.by_name(task).uses_pooler
            encoder.fresh_pooler = can_be_fresh and "pooler" not in checkpoint.groups
            model = encoder
            if task is not None:
                model = _head(encoder, task, checkpoint, fresh_head, head_options)
        if checkpoint.vocabulary is not None:
            encoder.preprocessor = _preprocessor(checkpoint, sequence_length, max_positions)
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from error
    model_weights.assign(model, task, checkpoint, fresh_head)
    return model


def check_sequence_length(value, max_positions):
    """Raise a `ValueError` unless `value` is None or a length of at most `max_positions` tokens."""
    if value is not None and as_integer("sequence_length", value, MIN_LENGTH) > max_positions:
        rule = f"sequence_length must be at most {max_positions}, the maximum of the model"
        raise ValueError(f"{rule}; received {value}")


def _warn_of_heads(checkpoint):
    """Warn if the config of a Hugging Face folder does not name the head that its weights have."""
    tasks = possible_tasks(checkpoint)
    if tasks:
        known = " or ".join(f"task={task!r}" for task in tasks)
        warnings.warn(
            f"{checkpoint.path} has the weights of a head, and architectures in its config does "
            f"not say which, so only the encoder is used. For the head, pass {known}",
            stacklevel=level_of_caller(),
        )


def _warn_of_modules(checkpoint):
    """Warn if embeddings of the encoder alone would not be those of the checkpoint."""
    if checkpoint.embedding != dataclasses.replace(checkpoint, embedding=None).modules:
        warnings.warn(
            f"{checkpoint.path} has layers, prompts or other settings of embeddings, which an "
            "encoder does not include. To use them, load it with task='embedding', or pass its "
            "path to keras_bert.pipeline",
            stacklevel=level_of_caller(),
        )


def to_checkpoint(model: keras.Model) -> Checkpoint:
    """Return the weights of a model, copied, as a `checkpoints.Checkpoint`.

    The model must be a `BertEncoder` or have a head of `keras_bert.heads`. LoRA weights are added
    to the weights that they adapt. Quantized weights are a ValueError, and so is a pooling that
    checkpoints cannot hold.
    """
    checkpoint = checkpoint_of(model)
    has_pooling = "pooling" in [layer.name for layer in model.layers]
    if has_pooling and checkpoint.embedding is None:
        raise ValueError(
            f"{model.name!r} has pooling={model.get_layer('pooling').mode!r}, which only "
            "format='keras' can hold; for other formats, build the head with pooling='pooler'"
        )
    return checkpoint


def checkpoint_of(model: keras.Model) -> Checkpoint:
    """Return a model as `to_checkpoint` does, but without the pooling of a classifier."""
    encoder = heads.find_encoder(model)
    output = heads.find_output(model)
    task = None if model is encoder else heads.find_task(model)
    if task is None and model is not encoder:
        raise ValueError(f"{model.name!r} must be an encoder or end in a head of keras_bert.heads")
    is_embedder = task is not None and registry.by_name(task).reads_encoders
    config = {key: encoder.get_config()[key] for key in canonical.CONFIG_KEYS}
    weights = model_weights.read(model, task)
    if output is not None and output.is_standardized:
        _fold_standardization(output, weights)
    unknown = [name for name in weights if not canonical.is_name(name)]
    rule = "weights must be those of BERT, and not quantized; use save with format='keras'"
    canonical.raise_if(model.name, rule, {"unknown": unknown})
    preprocessor = encoder.preprocessor
    checkpoint = Checkpoint(
        format="",
        path=model.name,
        config=config,
        weights=weights,
        vocabulary=None if preprocessor is None else _complete_vocabulary(preprocessor, config),
        tokenizer=_tokenizer_options(preprocessor, config["max_position_embeddings"]),
        task=task,
        tied="masked_lm/output_embeddings" not in weights,
        pooling=encoder.pooling,
        embedding=_embedding_modules(model) if is_embedder else None,
    )
    if task is None:
        return checkpoint
    if registry.by_name(task).weights_group != "classifier":
        return dataclasses.replace(
            checkpoint, prompts=output.prompts, default_prompt=output.default_prompt
        )
    rate = model.get_layer("dropout").rate
    return dataclasses.replace(
        checkpoint,
        labels=output.labels,
        multi_label=output.multi_label,
        pairs=output.pairs,
        activation=output.activation,
        dropout=None if rate == config["hidden_dropout_prob"] else rate,
    )


def _fold_standardization(output, weights):
    """Multiply the weights of a regressor's last layer, so that its logits are the numbers."""
    scale = np.float32(output.target_scale)
    mean = np.float32(output.target_mean)
    weights["classifier/kernel"] = weights["classifier/kernel"] * scale
    weights["classifier/bias"] = weights["classifier/bias"] * scale + mean


def _tokenizer_options(preprocessor, max_positions):
    """Return `Checkpoint.tokenizer` for a `Preprocessor`, or `None`, of an encoder."""
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
    return from_checkpoint(checkpoint, task or checkpoint.task, **options)


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


def _preprocessor(checkpoint, sequence_length, max_positions):
    options = dict(checkpoint.tokenizer)
    max_length = options.pop("sequence_length", None) or max_positions
    return Preprocessor(
        checkpoint.vocabulary,
        sequence_length=sequence_length,
        max_sequence_length=min(max_length, max_positions),
        **options,
    )


def _head(encoder, task, checkpoint, fresh, options):
    """Return the model of a task with the options that the checkpoint stores."""
    of_name = registry.by_name(task)
    stored = {} if fresh else of_name.stored_options(checkpoint)
    if of_name.weights_group == "classifier":
        stored["dropout"] = checkpoint.dropout
    if "num_classes" in options or "num_tags" in options:
        stored.pop("labels", None)
    return registry.by_name(task).head_function()(encoder, **(stored | options))


def _complete_vocabulary(preprocessor, config):
    """Return the vocabulary with a name for each id, which some libraries need.

    Added tokens at its end stay there, see `added_tokens.word_pieces`.
    """
    vocabulary = list(preprocessor.vocabulary)
    if len(word_pieces(vocabulary, preprocessor.added_tokens)) < len(vocabulary):
        return vocabulary
    unnamed = range(len(vocabulary), config["vocab_size"])
    return [*vocabulary, *(f"[unused{index}]" for index in unnamed)]


def _embedder_options(embedding):
    """Return the options of `heads.embedder` for an `EmbeddingModules`."""
    layers = list(embedding.layers)
    normalize = bool(layers) and layers[-1] is None
    layers = layers[:-1] if normalize else layers
    return {
        "pooling": list(embedding.pooling),
        "layers": [_keras_layer(index, layer) for index, layer in enumerate(layers, 1)],
        "normalize": normalize,
        "prompts": embedding.prompts,
        "default_prompt": embedding.default_prompt,
        "similarity": embedding.similarity,
    }


def _keras_layer(index, layer):
    """Return the Keras layer of a `DenseLayer`; of `None`, one that scales vectors to length 1."""
    if layer is None:
        return UnitLength(name=f"normalize_{index}")
    if isinstance(layer, NormLayer):
        norm = keras.layers.LayerNormalization(
            epsilon=NormLayer.EPSILON, dtype="float32", name=f"layer_norm_{index}"
        )
        norm.build((None, len(layer.gamma)))
        norm.set_weights([layer.gamma, layer.beta])
        return norm
    dense = keras.layers.Dense(
        layer.kernel.shape[1],
        activation=layer.activation,
        use_bias=layer.bias is not None,
        dtype="float32",
        name=f"dense_{index}",
    )
    dense.build((None, layer.kernel.shape[0]))
    dense.set_weights([layer.kernel, *([] if layer.bias is None else [layer.bias])])
    return dense


def _embedding_modules(model):
    """Return the `EmbeddingModules` of a model of `heads.embedder`."""
    pooling = model.get_layer("pooling")
    output = heads.find_output(model)
    first = model.layers.index(pooling) + 1
    layers = [_module_of(layer, model.name) for layer in model.layers[first:-1]]
    if pooling.normalize:
        layers.insert(0, None)
    modes = pooling.mode if isinstance(pooling.mode, tuple) else (pooling.mode,)
    return EmbeddingModules(
        modes, tuple(layers), output.prompts, output.default_prompt, output.similarity
    )


def _module_of(layer, model_name):
    """Return the `DenseLayer` of a Keras layer; `None` for one that scales vectors to length 1."""
    is_last_axis = isinstance(layer, keras.layers.UnitNormalization) and layer.axis in (-1, 1)
    if is_last_axis or isinstance(layer, UnitLength):
        return None
    if _is_norm(layer):
        return NormLayer(_as_array(layer.gamma), _as_array(layer.beta))
    is_dense = type(layer) is keras.layers.Dense
    is_plain = is_dense and not layer.lora_enabled and not layer.quantization_mode
    activation = keras.activations.serialize(layer.activation) if is_plain else None
    if not isinstance(activation, str):
        raise ValueError(
            f"{model_name!r} has the layer {layer.name!r} after its pooling; this format holds "
            "only UnitLength, LayerNormalization with epsilon=1e-5, and Dense without LoRA or "
            "quantization. Use format='keras'"
        )
    bias = _as_array(layer.bias) if layer.use_bias else None
    return DenseLayer(_as_array(layer.kernel), bias, activation)


def _is_norm(layer):
    """Return True for a layer normalization as that of PyTorch."""
    if type(layer) is not keras.layers.LayerNormalization:
        return False
    config = layer.get_config()
    is_plain = config["center"] and config["scale"] and not config.get("rms_scaling")
    return is_plain and config["epsilon"] == NormLayer.EPSILON and len(layer.gamma.shape) == 1


def _as_array(variable):
    return keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))
