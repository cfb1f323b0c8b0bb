"""From a checkpoint in canonical form to a model, and back; live models of other libraries too."""

import math
import types

import keras
import numpy as np

from keras_bert import checkpoints, heads
from keras_bert.checkpoints import keras_hub, model_garden_encoder
from keras_bert.checkpoints.canonical import OPTIONAL_GROUPS, Checkpoint
from keras_bert.encoder import BertEncoder
from keras_bert.layers import initializer, without_initial_weights
from keras_bert.text.preprocessor import Preprocessor, as_length

_BOUNDARY = 64  # bytes

# Heads whose dense layer the checkpoints call "classifier"; the others have their own names.
_CLASSIFIERS = ("classifier", "regressor", "tagger", "multiple_choice")
# Heads that do without the pooler, and whose checkpoints often do so too.
WITHOUT_POOLER = ("tagger", "span_selector", "masked_lm", "embedder")


def from_checkpoint(
    checkpoint,
    task=None,
    *,
    fresh_head=False,
    sequence_length=128,
    dtype=None,
    rematerialize=False,
    hidden_act=None,
    **head_options,
):
    """Builds the model that the weights of a checkpoint fill.

    Args:
        checkpoint: a `checkpoints.Checkpoint`.
        task: a function of `keras_bert.heads`; `None`: the encoder alone; `"auto"`: the head that
            the checkpoint names, or the encoder.
        fresh_head: whether the head starts from random weights, whatever the checkpoint has.
        sequence_length: of `encoder.preprocessor`, at most the encoder's
            `max_position_embeddings`; `None` pads to the longest of the batch.
        dtype: dtype policy of the encoder, such as `"mixed_bfloat16"`.
        rematerialize: trade time for memory in training.
        hidden_act: an activation to take instead of the checkpoint's.
        **head_options: of the head, such as `labels`.

    Returns:
        A `BertEncoder` with a `preprocessor` where there is a vocabulary; with `task` the head's
        model.

    Raises:
        ValueError: a head whose weights the checkpoint lacks, or a vocabulary or a config that
            does not fit.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> checkpoint = to_checkpoint(heads.classifier(encoder, labels=["bad", "good"]))
    >>> heads.find_output(from_checkpoint(checkpoint, "classifier")).labels
    ['bad', 'good']
    """
    if task == "auto":
        task = checkpoint.task
    config = dict(checkpoint.config)
    if hidden_act is not None:
        config["hidden_act"] = hidden_act
    longest = config["max_position_embeddings"]
    if sequence_length is not None:
        sequence_length = min(as_length(sequence_length, "sequence_length"), longest)
    if task is None and (head_options or fresh_head):
        name = next(iter(head_options), "fresh_head")
        raise ValueError(f"{name} is an option of a head: give the task too")
    try:
        with without_initial_weights(_zeros()):
            encoder = BertEncoder(**config, dtype=dtype, rematerialize=rematerialize)
            model = encoder
            if task is not None:
                model = _head(encoder, task, checkpoint, fresh_head, head_options)
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from error
    _assign(model, task, checkpoint, fresh_head)
    if checkpoint.vocabulary is not None:
        options = dict(checkpoint.tokenizer)
        max_sequence_length = min(options.pop("sequence_length", None) or longest, longest)
        try:
            encoder.preprocessor = Preprocessor(
                checkpoint.vocabulary,
                sequence_length=sequence_length,
                max_sequence_length=max_sequence_length,
                **options,
            )
        except ValueError as error:
            raise ValueError(f"{checkpoint.path}: {error}") from error
    return model


def to_checkpoint(model):
    """The weights of a model in canonical form; the way back from `from_checkpoint`.

    Args:
        model: a `BertEncoder`, or a model that a head built on one.

    Returns:
        A `checkpoints.Checkpoint`, whose arrays are copies.

    Raises:
        ValueError: it holds no encoder or several, layers of another kind, or quantized or
            low-rank weights.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> to_checkpoint(encoder).weights["pooler/dense/bias"]
    array([0., 0., 0., 0.], dtype=float32)
    """
    encoder, output, task = heads.find_encoder(model), heads.find_output(model), None
    if model is not encoder:
        task = heads.find_task(model)
        if task is None:
            raise ValueError(
                f"{model.name!r} must be an encoder or end in a head of keras_bert.heads; other "
                "layers have no place in a checkpoint"
            )
    config = {key: encoder.get_config()[key] for key in checkpoints.canonical.CONFIG_KEYS}
    weights = {
        name: np.array(keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32")))
        for name, variable in _variables(model, task).items()
    }
    labels = getattr(output, "labels", None)
    known = checkpoints.canonical.names(config)
    checkpoints.canonical.raise_if(
        model.name,
        "weights must be those of BERT, neither quantized nor of low rank",
        unknown=[name for name in weights if name not in known],
    )
    preprocessor = encoder.preprocessor
    return Checkpoint(
        format="",
        path=model.name,
        config=config,
        weights=weights,
        vocabulary=None if preprocessor is None else _padded(preprocessor.vocabulary, config),
        tokenizer={
            "lowercase": True if preprocessor is None else preprocessor.lowercase,
            "strip_accents": True if preprocessor is None else preprocessor.strip_accents,
            "split_cjk": True if preprocessor is None else preprocessor.split_cjk,
            "sequence_length": None if preprocessor is None else preprocessor.max_sequence_length,
        },
        labels=labels if task in _CLASSIFIERS else None,
        task=task,
        multi_label=bool(getattr(output, "multi_label", False)),
    )


def from_keras_hub(model, task=None, **options):
    """Builds our model of a live one of KerasHub.

    Args:
        model: a `keras_hub.models.BertBackbone`, `BertTextClassifier` or `BertMaskedLM`, also by
            their names in `keras_nlp`. The weights are copied.
        task: as for `from_checkpoint`; default: the head of the task.
        **options: as for `from_checkpoint`.

    Returns:
        A `BertEncoder`, or the model of a head.

    Raises:
        ValueError: another kind of model.
    """
    checkpoint = keras_hub.from_backbone(model)
    return from_checkpoint(checkpoint, task or checkpoint.task, **options)


def to_keras_hub(model, backbone=None):
    """Gives an encoder's weights to KerasHub, whose tasks then train and save it.

    Args:
        model: a `BertEncoder`, or a model on one; a head's weights stay here.
        backbone: a `keras_hub.models.BertBackbone` to fill; `None`: a new one, for which
            keras_hub must be installed.

    Returns:
        The backbone.

    Raises:
        ValueError: KerasHub cannot compute the same: another activation than tanh gelu, or a
            `layer_norm_eps` other than 1e-12; or the sizes differ.
    """
    return keras_hub.to_backbone(to_checkpoint(heads.find_encoder(model)), backbone)


def from_model_garden(encoder, **options):
    """Builds our encoder of a live one of TensorFlow's Model Garden.

    Args:
        encoder: an `official.nlp.modeling.networks.BertEncoderV2` or `BertEncoder`. The weights
            are copied.
        **options: as for `from_checkpoint`.

    Returns:
        A `BertEncoder`, without a preprocessor.

    Raises:
        ValueError: another kind of model.
    """
    return from_checkpoint(model_garden_encoder.from_encoder(encoder), **options)


def to_model_garden(model, encoder=None):
    """Gives an encoder's weights to TensorFlow's Model Garden, whose trainers go on with it.

    Args:
        model: a `BertEncoder`, or a model on one; a head's weights stay here.
        encoder: an `official.nlp.modeling.networks.BertEncoderV2` or `BertEncoder` to fill;
            `None`: a new `BertEncoderV2`, for which tf-models-official must be installed.

    Returns:
        The encoder.

    Raises:
        ValueError: the sizes differ, or the activation is not known there.
    """
    return model_garden_encoder.to_encoder(to_checkpoint(heads.find_encoder(model)), encoder)


def _head(encoder, task, checkpoint, fresh, options):
    """The model of a task, with as many classes as the checkpoint has."""
    options = dict(options)
    if task in ("classifier", "tagger") and not fresh:
        bias = checkpoint.weights.get("classifier/bias")
        # Without a classifier the number does not matter: to fill it will fail.
        labels = [str(index) for index in range(2 if bias is None else len(bias))]
        if "num_classes" not in options and "num_tags" not in options:
            options.setdefault("labels", checkpoint.labels or labels)
    if task == "classifier" and not fresh:
        options.setdefault("multi_label", checkpoint.multi_label)
    return heads.TASKS[task](encoder, **options)


def _padded(vocabulary, config):
    """The pieces, and names that no text holds for ids that have none: files want them all."""
    more = range(len(vocabulary), config["vocab_size"])
    return [*vocabulary, *(f"[unused{index}]" for index in more)]


def _variables(model, task):
    """Canonical name -> variable of a model."""
    group = "classifier" if task in _CLASSIFIERS else task
    return {
        variable.path.replace("logits/", f"{group}/", 1): variable
        for variable in model.variables
        if "seed_generator" not in variable.path
    }


def _assign(model, task, checkpoint, fresh_head):
    """Fills all variables of a model, or fails and names those it cannot fill."""
    variables = _variables(model, task)
    parts = {_part(name) for name in variables} & OPTIONAL_GROUPS
    fresh = parts - {"pooler"} if fresh_head else set()
    # An encoder alone without a pooler would have an untrained one: an error below.
    if (fresh_head or task in WITHOUT_POOLER) and "pooler" not in checkpoint.groups:
        fresh.add("pooler")
    for name in [name for name in variables if _part(name) in fresh]:
        _initialize(variables.pop(name), checkpoint.config["initializer_range"])
    if task is not None:
        _check_head(task, checkpoint, variables, parts - fresh)
    checkpoints.assign(
        {name: _fillable(variable) for name, variable in variables.items()},
        checkpoint.weights,
        source=checkpoint.path,
        ignore=tuple(f"{group}/" for group in OPTIONAL_GROUPS - (parts - fresh)),
    )


def _check_head(task, checkpoint, variables, needed):
    """Raises if the checkpoint lacks parts that a head needs, or they are another head's."""
    must = f"{checkpoint.path}: must have the weights of the head {task}"
    hint = "fresh_head=True starts from random ones"
    missing = [name for name in variables if _part(name) in needed - checkpoint.groups]
    if missing:
        raise ValueError(f"{must}; missing ({len(missing)}): {', '.join(missing)}; {hint}")
    # Heads of different kinds may have tensors of the same names.
    if "classifier" in needed and checkpoint.task not in (None, task):
        raise ValueError(f"{must}; it is a {checkpoint.task}; {hint}")


def _part(name):
    return name.partition("/")[0]


def _initialize(variable, stddev):
    if variable.path.endswith("kernel"):
        variable.assign(initializer(stddev)(variable.shape))
    else:
        fill = keras.ops.ones_like if variable.path.endswith("gamma") else keras.ops.zeros_like
        variable.assign(fill(variable.value))


# TensorFlow takes an array over as it is where it lies on a boundary of its vector units. So the
# zeros of a new model need no memory until they are overwritten, and weights are copied once.


def _zeros():
    zeros = keras.initializers.Zeros()
    if keras.backend.backend() != "tensorflow":
        return zeros

    def make(shape, dtype=None):
        if dtype == "bfloat16":  # NumPy has none to hand over
            return zeros(shape, dtype)
        return _take_over(_aligned(shape, dtype))

    return make


def _fillable(variable):
    """The variable, or one that takes an array without a second copy."""
    if keras.backend.backend() != "tensorflow" or variable.dtype != "float32":
        return variable

    def assign(value):
        array = _aligned(value.shape, "float32")
        np.copyto(array, value)
        variable.assign(_take_over(array))

    return types.SimpleNamespace(shape=variable.shape, assign=assign)


def _aligned(shape, dtype):
    """An array of zeros, which the system gives no memory before they are written to."""
    dtype = np.dtype(dtype or "float32")
    size = math.prod(shape) * dtype.itemsize
    buffer = np.zeros(size + _BOUNDARY, np.uint8)
    start = -buffer.ctypes.data % _BOUNDARY
    return buffer[start : start + size].view(dtype).reshape(shape)


def _take_over(array):
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
