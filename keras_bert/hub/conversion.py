"""Convert models to and from checkpoints in canonical form and models of other libraries."""

import math
import types
import warnings

import keras
import numpy as np

from keras_bert import checkpoints, heads, keras_private
from keras_bert.checkpoints import keras_hub_models, model_garden_encoders
from keras_bert.checkpoints.added_tokens import word_pieces
from keras_bert.checkpoints.canonical import (
    OPTIONAL_GROUPS,
    Checkpoint,
    DenseLayer,
    EmbeddingModules,
    group_of,
)
from keras_bert.checkpoints.folder import default_tokenizer
from keras_bert.checkpoints.huggingface_heads import TORCH_ACTIVATIONS, possible_tasks
from keras_bert.encoder import BertEncoder
from keras_bert.layers import UnitLength, initializer, without_initial_weights
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.warn import level_of_caller
from keras_bert.text.preprocessor import MIN_LENGTH, Preprocessor

_ALIGNMENT = 64  # bytes
_DEFAULT_LENGTH = 128  # tokens

# Heads whose weights are named "classifier" in checkpoints. Other heads use their own name.
_CLASSIFIERS = ("classifier", "regressor", "tagger", "multiple_choice")
# Heads that do not use the pooler. Their checkpoints often have no pooler.
WITHOUT_POOLER = ("tagger", "span_selector", "masked_lm", "embedder")


def from_checkpoint(
    checkpoint,
    task=None,
    *,
    fresh_head=False,
    sequence_length="auto",
    dtype=None,
    rematerialize=False,
    hidden_act=None,
    pooling=None,
    **head_options,
):
    """Build a `BertEncoder`, or the model of the head `task`, from a `checkpoints.Checkpoint`.

    The options are those of `loading.load`. `pooling` is that of the encoder, by default the
    checkpoint's. The encoder has a `preprocessor` if the checkpoint has a vocabulary.
    """
    if task == "auto":
        task = checkpoint.task
        if task is None and checkpoint.embedding is None:
            _warn_of_heads(checkpoint)
    if task == "embedder" and checkpoint.embedding is not None and not fresh_head:
        head_options = _embedder_options(checkpoint.embedding) | head_options
        if pooling is not None:
            head_options["pooling"] = pooling
    elif task is None and checkpoint.embedding is not None:
        _warn_of_modules(checkpoint)
    config = dict(checkpoint.config)
    if hidden_act is not None:
        config["hidden_act"] = hidden_act
    longest = config["max_position_embeddings"]
    if sequence_length == "auto":
        sequence_length = min(_DEFAULT_LENGTH, longest)
    check_sequence_length(sequence_length, longest)
    if task is None and (head_options or fresh_head):
        name = next(iter(head_options), "fresh_head")
        raise ValueError(f"{name} needs a task, such as task='classifier'")
    try:
        with without_initial_weights(_zeros()):
            encoder = BertEncoder(
                **config, dtype=dtype, rematerialize=rematerialize,
                pooling=pooling or checkpoint.pooling,
            )  # fmt: skip
            needs_pooler = task is not None and not fresh_head and task not in WITHOUT_POOLER
            encoder.fresh_pooler = "pooler" not in checkpoint.groups and not needs_pooler
            model = encoder
            if task is not None:
                model = _head(encoder, task, checkpoint, fresh_head, head_options)
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from error
    _assign(model, task, checkpoint, fresh_head)
    if checkpoint.vocabulary is not None:
        encoder.preprocessor = _preprocessor(checkpoint, sequence_length, longest)
    return model


def check_sequence_length(value, longest):
    """Raise a `ValueError` unless `value` is None or a length of at most `longest` tokens."""
    if value is not None and as_integer("sequence_length", value, MIN_LENGTH) > longest:
        raise ValueError(
            f"sequence_length must be at most {longest}, the maximum of the model; received {value}"
        )


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
    if checkpoint.embedding != EmbeddingModules((checkpoint.pooling,), (None,)):
        warnings.warn(
            f"{checkpoint.path} has layers, prompts or other settings of embeddings, which an "
            "encoder does not include. To use them, load it with task='embedder', or pass its path "
            "to keras_bert.pipeline",
            stacklevel=level_of_caller(),
        )


def to_checkpoint(model):
    """Return the weights of a model, copied, as a `checkpoints.Checkpoint`.

    The model must be a `BertEncoder` or have a head of `keras_bert.heads`. LoRA weights are added
    to the weights that they adapt. Quantized weights are a ValueError.
    """
    encoder, output, task = heads.find_encoder(model), heads.find_output(model), None
    if model is not encoder:
        task = heads.find_task(model)
        if task is None:
            raise ValueError(
                f"{model.name!r} must be an encoder or end in a head of keras_bert.heads; other "
                "layers cannot be saved in a checkpoint"
            )
    if task in ("classifier", "regressor") and "pooling" in [each.name for each in model.layers]:
        raise ValueError(
            f"{model.name!r} has pooling={model.get_layer('pooling').mode!r}, which only "
            "format='keras' can hold; for other formats, build the head with pooling='pooler'"
        )
    config = {key: encoder.get_config()[key] for key in checkpoints.canonical.CONFIG_KEYS}
    weights = {
        name: np.array(keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32")))
        for name, variable in _variables(model, task).items()
    }
    _merge_lora(model, task, weights)
    labels = getattr(output, "labels", None)
    unknown = [name for name in weights if not checkpoints.canonical.is_name(name)]
    rule = "weights must be those of BERT, and not quantized; use save with format='keras'"
    checkpoints.canonical.raise_if(model.name, rule, {"unknown": unknown})
    preprocessor = encoder.preprocessor
    return Checkpoint(
        format="",
        path=model.name,
        config=config,
        weights=weights,
        vocabulary=None if preprocessor is None else _complete_vocabulary(preprocessor, config),
        tokenizer=_tokenizer_options(preprocessor),
        labels=labels if task in _CLASSIFIERS else None,
        task=task,
        multi_label=bool(getattr(output, "multi_label", False)),
        pairs=task in ("classifier", "regressor") and output.pairs,
        activation=output.activation if task == "regressor" else None,
        dropout=_other_dropout(model, encoder) if task in _CLASSIFIERS else None,
        tied="masked_lm/output_embeddings" not in weights,
        pooling=encoder.pooling,
        embedding=_embedding_modules(model) if task == "embedder" else None,
    )


def _other_dropout(model, encoder):
    """Return the dropout rate of a head; `None` if it is that of its encoder."""
    rate = model.get_layer("dropout").rate
    return None if rate == encoder.get_config()["hidden_dropout_prob"] else rate


def _tokenizer_options(preprocessor):
    """Return `Checkpoint.tokenizer` for a `Preprocessor` or `None`."""
    if preprocessor is None:
        return default_tokenizer(lowercase=True)
    options = preprocessor.tokenizer_options()
    if not options["added_tokens"]:
        del options["added_tokens"]
    return {**options, "sequence_length": preprocessor.max_sequence_length}


def from_keras_hub(model, task=None, **options):
    """Build a model with copies of the weights of a KerasHub model.

    That is a `BertBackbone`, `BertTextClassifier` or `BertMaskedLM` of `keras_hub` or `keras_nlp`.
    The options are those of `from_checkpoint`; the default of `task` is the task of the model.
    """
    checkpoint = keras_hub_models.from_model(model)
    return from_checkpoint(checkpoint, task or checkpoint.task, **options)


def to_keras_hub(model, backbone=None):
    """Copy the weights of a model's encoder to a `BertBackbone`; `None` creates one.

    KerasHub supports only the tanh gelu and a `layer_norm_eps` of 1e-12.
    """
    return keras_hub_models.to_backbone(to_checkpoint(heads.find_encoder(model)), backbone)


def from_model_garden(encoder, **options):
    """Build an encoder from a `BertEncoder` or `BertEncoderV2` of TensorFlow's Model Garden.

    The weights are copied. The options are those of `from_checkpoint`. There is no preprocessor.
    """
    return from_checkpoint(model_garden_encoders.from_encoder(encoder), **options)


def to_model_garden(model, encoder=None):
    """Copy the weights of a model's encoder to an encoder of TensorFlow's Model Garden.

    `encoder` is a `BertEncoder` or `BertEncoderV2`; `None` creates a `BertEncoderV2`.
    """
    return model_garden_encoders.to_encoder(to_checkpoint(heads.find_encoder(model)), encoder)


def _preprocessor(checkpoint, sequence_length, longest):
    options = dict(checkpoint.tokenizer)
    max_sequence_length = min(options.pop("sequence_length", None) or longest, longest)
    try:
        return Preprocessor(
            checkpoint.vocabulary,
            sequence_length=sequence_length,
            max_sequence_length=max_sequence_length,
            **options,
        )
    except ValueError as error:
        raise ValueError(
            f"{checkpoint.path}: {error} To load the encoder without a preprocessor, remove the "
            "vocabulary from a copy of the folder."
        ) from error


def _head(encoder, task, checkpoint, fresh, options):
    """Return the model of a task with the options that the checkpoint stores."""
    stored = {} if fresh else _stored_options(task, checkpoint)
    if task in _CLASSIFIERS:
        stored["dropout"] = checkpoint.dropout
    if "num_classes" in options or "num_tags" in options:
        stored.pop("labels", None)
    if "labels" not in options:
        _check_names(task, stored.get("labels", []))
    return heads.TASKS[task](encoder, **{**stored, **options})


def _check_names(task, labels):
    """Raise an error if several classes of a checkpoint have the same name."""
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated is not None:
        raise ValueError(
            f"several classes have the name {repeated!r:.80}. Give each class its own name: "
            f"keras_bert.load(name, task={task!r}, labels=[...]) with {len(labels)} names"
        )


def _stored_options(task, checkpoint):
    """Return the options of a head that a checkpoint stores."""
    options = {}
    if task in ("classifier", "tagger"):
        bias = checkpoint.weights.get("classifier/bias")
        # Without classifier weights the number is irrelevant: `_assign` raises an error.
        numbers = [str(index) for index in range(2 if bias is None else len(bias))]
        options["labels"] = checkpoint.labels or numbers
    if task in ("classifier", "regressor"):
        options["pairs"] = checkpoint.pairs
        options["pooling"] = "pooler"  # checkpoint formats store only the pooler
    if task == "classifier":
        options["multi_label"] = checkpoint.multi_label
        if checkpoint.activation not in (None, "linear"):
            raise ValueError(_activation_error(checkpoint, "Identity, Softmax or Sigmoid"))
    if task == "regressor":
        options["activation"] = checkpoint.activation
        if checkpoint.activation not in (None, *TORCH_ACTIVATIONS.values()):
            raise ValueError(_activation_error(checkpoint, ", ".join(TORCH_ACTIVATIONS)))
    if task in ("masked_lm", "pretraining"):
        options["tied"] = checkpoint.tied
    return options


def _activation_error(checkpoint, known):
    return (
        f"the activation_fn of a {checkpoint.task} must be {known} of torch.nn; received "
        f"{checkpoint.activation!r:.80}. Load the encoder without task"
    )


def _embedder_options(embedding):
    """Return the options of `heads.embedder` for an `EmbeddingModules`."""
    layers = list(embedding.layers)
    normalize = bool(layers) and layers[-1] is None
    layers = layers[:-1] if normalize else layers
    return {
        "pooling": list(embedding.pooling),
        "layers": [_dense_or_normalize(*each) for each in enumerate(layers, 1)],
        "normalize": normalize,
        "prompts": embedding.prompts,
        "default_prompt": embedding.default_prompt,
        "similarity": embedding.similarity,
    }


def _dense_or_normalize(number, layer):
    """Return the Keras layer of a `DenseLayer`; of `None`, one that scales vectors to length 1."""
    if layer is None:
        return UnitLength(name=f"normalize_{number}")
    dense = keras.layers.Dense(
        layer.kernel.shape[1],
        activation=layer.activation,
        use_bias=layer.bias is not None,
        kernel_initializer=keras.initializers.Constant(layer.kernel),
        dtype="float32",
        name=f"dense_{number}",
    )
    dense.build((None, layer.kernel.shape[0]))
    dense.set_weights([layer.kernel, *([] if layer.bias is None else [layer.bias])])
    return dense


def _embedding_modules(model):
    """Return the `EmbeddingModules` of a model of `heads.embedder`."""
    pooling, output = model.get_layer("pooling"), heads.find_output(model)
    layers: list[DenseLayer | None] = [None] if pooling.normalize else []
    first = model.layers.index(pooling) + 1
    for layer in model.layers[first:-1]:
        is_last_axis = getattr(layer, "axis", -1) in (-1, 1)
        if isinstance(layer, (UnitLength, keras.layers.UnitNormalization)) and is_last_axis:
            layers.append(None)
            continue
        is_dense = type(layer) is keras.layers.Dense and not (
            layer.lora_enabled or layer.quantization_mode
        )
        activation = keras.activations.serialize(layer.activation) if is_dense else None
        if not isinstance(activation, str):
            raise ValueError(
                f"{model.name!r} has the layer {layer.name!r} after its pooling; this format holds "
                "only UnitLength, and Dense without LoRA or quantization. Use format='keras'"
            )
        weights = [keras.ops.convert_to_numpy(weight) for weight in layer.weights]
        bias = weights[1] if layer.use_bias else None
        layers.append(DenseLayer(weights[0], bias, activation))
    modes = pooling.mode if isinstance(pooling.mode, tuple) else (pooling.mode,)
    return EmbeddingModules(
        modes, tuple(layers), output.prompts, output.default_prompt, output.similarity
    )


def _complete_vocabulary(preprocessor, config):
    """Return the vocabulary with a name for each id, which some libraries need.

    Added tokens at its end stay there, see `added_tokens.word_pieces`.
    """
    vocabulary = list(preprocessor.vocabulary)
    if len(word_pieces(vocabulary, preprocessor.added_tokens)) < len(vocabulary):
        return vocabulary
    unnamed = range(len(vocabulary), config["vocab_size"])
    return [*vocabulary, *(f"[unused{index}]" for index in unnamed)]


def _variables(model, task):
    """Return {canonical name: variable} of a model."""
    group = "classifier" if task in _CLASSIFIERS else task
    if task == "embedder":  # its layers after the pooling are in `Checkpoint.embedding`
        model = heads.find_encoder(model)
    return {weight.path.replace("logits/", f"{group}/", 1): weight for weight in model.weights}


def _merge_lora(model, task, weights):
    """Add the LoRA weights among `weights`, {canonical name: array}, in place."""
    names = {variable.path: name for name, variable in _variables(model, task).items()}
    for layer in keras_private.all_layers(model):
        if not getattr(layer, "lora_enabled", False) or layer.quantization_mode:
            continue
        for kind in ("kernel", "embeddings"):
            first = getattr(layer, f"lora_{kind}_a", None)
            name = None if first is None else names.get(first.path)
            if name is not None:
                prefix = name.removesuffix(f"lora_{kind}_a")
                factors = weights.pop(name), weights.pop(f"{prefix}lora_{kind}_b")
                scale = layer.lora_alpha / layer.lora_rank
                weights[f"{prefix}{kind}"] += np.float32(scale) * np.matmul(*factors)


def _assign(model, task, checkpoint, fresh_head):
    """Set all variables of a model, or raise ValueError with the names of missing weights."""
    variables = _variables(model, task)
    parts = {group_of(name) for name in variables} & OPTIONAL_GROUPS
    fresh = parts - {"pooler"} if fresh_head else set()
    can_be_fresh = fresh_head or task is None or task in WITHOUT_POOLER
    if can_be_fresh and "pooler" not in checkpoint.groups:
        fresh.add("pooler")
    for name in [name for name in variables if group_of(name) in fresh]:
        _initialize(variables.pop(name), checkpoint.config["initializer_range"])
    if task is not None:
        _check_head(task, checkpoint, variables, parts - fresh)
    checkpoints.assign(
        {name: _single_copy(variable) for name, variable in variables.items()},
        checkpoint.weights,
        source=checkpoint.path,
        ignore=tuple(f"{group}/" for group in OPTIONAL_GROUPS - (parts - fresh)),
    )


def _check_head(task, checkpoint, variables, needed):
    """Raise ValueError if the checkpoint lacks weights of the head or has another head."""
    must = f"{checkpoint.path}: must have the weights of the head {task}"
    hint = "pass fresh_head=True for random weights"
    missing = [name for name in variables if group_of(name) in needed - checkpoint.groups]
    if missing:
        raise ValueError(f"{must}; missing ({len(missing)}): {', '.join(missing)}; {hint}")
    decoder = "masked_lm/output_embeddings"
    if decoder in variables and decoder not in checkpoint.weights:
        raise ValueError(
            f"{must}; tie_word_embeddings is false, and {decoder} is missing. Pass tied=True to "
            "use the word embeddings in its place, or load the encoder without task"
        )
    # Different heads may have weights of the same names.
    if "classifier" in needed and checkpoint.task not in (None, task):
        raise ValueError(f"{must}; it is a {checkpoint.task}; {hint}")
    outputs = len(checkpoint.weights["classifier/bias"]) if "classifier" in needed else 1
    if task == "regressor" and outputs != 1:
        raise ValueError(
            f"{must}, which has one output; the checkpoint has {outputs}. Load the encoder without "
            "task"
        )


def _initialize(variable, stddev):
    if variable.path.endswith(("kernel", "output_embeddings")):
        variable.assign(initializer(stddev)(variable.shape))
    else:
        fill = keras.ops.ones_like if variable.path.endswith("gamma") else keras.ops.zeros_like
        variable.assign(fill(variable.value))


# TensorFlow uses the memory of an array without a copy if the array is aligned for its vector
# units. Untouched zeros need no memory, and weights are copied only once.


def _zeros():
    zeros = keras.initializers.Zeros()
    if keras.backend.backend() != "tensorflow":
        return zeros

    def make(shape, dtype=None):
        if dtype == "bfloat16":  # NumPy has no bfloat16
            return zeros(shape, dtype)
        return _as_tensor(_aligned_zeros(shape, dtype))

    return make


def _single_copy(variable):
    """Return an object like the variable whose `assign` copies an array only once."""
    if keras.backend.backend() != "tensorflow" or variable.dtype != "float32":
        return variable

    def assign(value):
        array = _aligned_zeros(value.shape, "float32")
        np.copyto(array, value)
        variable.assign(_as_tensor(array))

    return types.SimpleNamespace(shape=variable.shape, assign=assign)


def _aligned_zeros(shape, dtype):
    """Return an aligned array of zeros. The system allocates its memory on the first write."""
    dtype = np.dtype(dtype or "float32")
    size = math.prod(shape) * dtype.itemsize
    buffer = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)


def _as_tensor(array):
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
