"""Models for packed sequences: rows that hold several texts each.

Each text attends only to itself and has its own positions, so the other texts of a row do not
change its logits. Source: Krell et al. (2021), Efficient sequence packing without
cross-contamination.
"""

import keras

from keras_bert import keras_private
from keras_bert.encoder import BertEncoder
from keras_bert.layers import GatherTexts, SentencePooling, UnitLength
from keras_bert.model_structure import find_encoder
from keras_bert.tasks import registry

# Names of the layers of a head that can be packed.
_HEAD_LAYERS = ["dropout", "logits", "output"]
_SIAMESE_AXES = 3  # rows, texts, width
_POOLING = "pooling"  # first layer of a head on the mean over the tokens


def packed(model, *, name="packed"):
    """Return a version of a classifier, regressor or tagger for packed sequences; it shares layers.

    Inputs, int32: `input_word_ids`, `input_type_ids`, `position_ids` and `text_ids` (batch, seq),
    where `text_ids` is 1 for the first text (or pair) of a row, 2 for the second, ..., and 0 for
    padding. Except for a tagger also `cls_positions` (batch, texts). Output: logits,
    (batch, seq, num_tags) for a tagger and (batch, texts, ...) for the others.
    """
    if not can_be_packed(model):
        raise ValueError(f"{model.name!r} must be an unchanged classifier, regressor or tagger")
    inputs = _packed_inputs()
    encoder = find_encoder(model)
    if registry.for_model(model).positions_have_targets:
        x = _encode(encoder, inputs)["sequence_output"]
    else:
        inputs["cls_positions"] = cls_positions = _input("cls_positions")
        if _has_pooling(model):
            x = _pool_each_text(model, _encode(encoder, inputs)["sequence_output"], inputs)
        else:  # no output positions, since the head reads only the [CLS] vectors
            optional = {"cls_positions": cls_positions, "output_positions": cls_positions[:, :0]}
            x = _encode(encoder, inputs, **optional)["pooled_output"]
    for layer in _HEAD_LAYERS:
        x = model.get_layer(layer)(x)
    return keras.Model(inputs, x, name=name)


def packed_siamese(model, *, name="packed_siamese"):
    """Return a version of a model of `heads.siamese` for packed sequences; it shares layers.

    Inputs, int32: those of `packed`, and `text_numbers` (rows, texts): for each text of a row of
    texts its number among all texts of the batch, if each packed sequence had the width of
    `cls_positions`. Output: embeddings (rows, texts, width). The pooling must be "mean".
    """
    inputs = _packed_inputs()
    encoder = find_encoder(model)
    inputs |= {key: _input(key) for key in ("cls_positions", "text_numbers")}
    x = _pool_each_text(model, _encode(encoder, inputs)["sequence_output"], inputs)
    pooling = model.get_layer(_POOLING)
    *layers, _, output = model.layers[model.layers.index(pooling) + 1 :]
    for layer in layers:
        x = layer(x)
    x = GatherTexts(name="gather_texts")(x, inputs["text_numbers"])
    return keras.Model(inputs, output(x), name=name)


def packed_lists(model, *, name="packed_lists"):
    """Return a version of a reranker for packed lists of documents; it shares layers.

    Inputs, int32: those of `packed`, and `text_numbers` as in `packed_siamese`, here the number of
    each document of a list. Output: float32 (lists, documents).
    """
    scores = packed(model)
    inputs = dict(scores.input)
    inputs["text_numbers"] = _input("text_numbers")
    x = GatherTexts(name="gather_texts")(scores.output, inputs["text_numbers"])
    return keras.Model(inputs, x[:, :, 0], name=name)


def packed_rows(model):
    """Return the packed version of a model that is trained on rows of texts, or on lists."""
    is_siamese = len(model.inputs[0].shape) == _SIAMESE_AXES
    return packed_siamese(model) if is_siamese else packed_lists(model)


def packed_pretraining(model, *, name="packed_pretraining"):
    """Return a version of a pretraining or masked LM model for packed sequences; it shares layers.

    Inputs, int32: those of `packed`, and `masked_lm_positions` (batch, predictions);
    `cls_positions` only for `heads.pretraining`. Outputs: those of the model, but `next_sentence`
    is (batch, texts, 2).
    """
    if "masked_lm_positions" not in model.input:
        raise ValueError(f"the model must predict masked tokens; received {model.name!r}")
    has_pairs = isinstance(model.output, dict)
    inputs = _packed_inputs()
    inputs["masked_lm_positions"] = positions = _input("masked_lm_positions")
    optional = {"output_positions": positions}
    if has_pairs:
        inputs["cls_positions"] = optional["cls_positions"] = _input("cls_positions")
    x = _encode(find_encoder(model), inputs, **optional)
    logits = model.get_layer("masked_lm")(x["sequence_output"])
    if not has_pairs:
        return keras.Model(inputs, model.get_layer("output")(logits), name=name)
    next_sentence = model.get_layer("next_sentence")(x["pooled_output"])  # (batch, texts, 2)
    outputs = {
        "masked_lm": model.get_layer("masked_lm_output")(logits),
        "next_sentence": model.get_layer("next_sentence_output")(next_sentence),
    }
    return keras.Model(inputs, outputs, name=name)


def can_be_packed(model):
    """Return True if a model can be packed: an unchanged classifier, regressor, tagger or siamese.

    `packed` would lose what a user added to a model, such as another attention mask. A
    pooling layer must have the mode "mean".
    """
    task = registry.find(model)
    if task is None or not task.packs:
        return False
    pooling = model.get_layer(_POOLING) if _has_pooling(model) else None
    is_mean = isinstance(pooling, SentencePooling) and pooling.mode == "mean"
    if len(model.inputs[0].shape) == _SIAMESE_AXES:
        return is_mean and len(model.output_shape) == _SIAMESE_AXES
    if pooling is not None and not is_mean:
        return False
    # `model.operations` also lists operations of `keras.ops`, which are not layers.
    operations = [x for x in model.operations if not isinstance(x, keras.layers.InputLayer)]
    encoder, *head = operations
    names = [*([_POOLING] if pooling is not None else []), *_HEAD_LAYERS]
    if not isinstance(encoder, BertEncoder) or [layer.name for layer in head] != names:
        return False
    if not isinstance(model.input, dict) or set(model.input) != set(encoder.input):
        return False
    # The head must read the default output of the encoder, not, for example, a lower layer.
    tensor = model.output
    for _ in head:
        tensor = keras_private.parent_tensors(tensor)[0]
    paths = [path for path, _ in keras.tree.flatten_with_path(encoder.output)]
    reads_sequence = task.positions_have_targets or pooling is not None
    key = "sequence_output" if reads_sequence else "pooled_output"
    return paths[keras_private.output_index(tensor)] == (key,)


def _has_pooling(model):
    return any(layer.name == _POOLING for layer in model.layers)


def _pool_each_text(model, sequence_output, inputs):
    """Return the mean over the tokens of each text, float32 (batch, texts, hidden).

    The vectors have length 1 if the model's pooling normalizes them.
    """
    numbers = keras.ops.cumsum(keras.ops.ones_like(inputs["cls_positions"]), axis=1)  # 1, 2, ...
    is_member = keras.ops.equal(inputs["text_ids"][:, None, :], numbers[:, :, None])
    is_member = keras.ops.cast(is_member, "float32")  # (batch, texts, seq)
    total = keras.ops.matmul(is_member, keras.ops.cast(sequence_output, "float32"))
    count = keras.ops.sum(is_member, axis=-1, keepdims=True)
    mean = total / keras.ops.maximum(count, 1.0)
    if model.get_layer(_POOLING).normalize:
        return UnitLength(name="normalize_mean")(mean)  # some texts of a row are empty, zeros
    return mean


def _input(name):
    return keras.Input(shape=(None,), dtype="int32", name=name)


def _packed_inputs():
    keys = ("input_word_ids", "input_type_ids", "position_ids", "text_ids")
    return {key: _input(key) for key in keys}


def _encode(encoder, inputs, **optional):
    """Call the encoder with a block-diagonal attention mask made from `text_ids`."""
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
