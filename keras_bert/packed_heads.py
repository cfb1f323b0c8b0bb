"""Models for packed sequences: rows that hold several texts each.

Each text attends only to itself and has its own positions, so the other texts of a row do not
change its logits. Source: Krell et al. (2021), Efficient sequence packing without
cross-contamination.
"""

import keras

from keras_bert import keras_private
from keras_bert.encoder import BertEncoder
from keras_bert.layers import GatherTexts, SentencePooling, UnitLength
from keras_bert.model_structure import find_encoder, has_choices
from keras_bert.tasks import registry

# Names of the layers of a head that can be packed.
_HEAD_LAYERS = ["dropout", "logits", "output"]
_POOLING = "pooling"  # first layer of a head on the mean over the tokens


def packed(model, *, name="packed"):
    """Return a version of a model for packed sequences; it shares the layers.

    Inputs, int32: `input_word_ids`, `input_type_ids`, `position_ids` and `text_ids` (batch, seq),
    where `text_ids` is 1 for the first text (or pair) of a row, 2 for the second, ..., and 0 for
    padding. Except for a tagger also `cls_positions` (batch, texts). Output: logits,
    (batch, seq, num_tags) for a tagger and (batch, texts, ...) for the others.
    """
    if not can_be_packed(model):
        raise ValueError(
            f"{model.name!r} must be an unchanged classifier, regressor, tagger or embedder"
        )
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
    for layer in _operations(model):
        if not isinstance(layer, BertEncoder) and layer.name != _POOLING:
            x = layer(x)
    return keras.Model(inputs, x, name=name)


def packed_rows(model, *, name="packed_rows"):
    """Return a version of an embedder or reranker for packed rows of texts; it shares the layers.

    Inputs, int32: those of `packed`, and `text_numbers` (rows, texts): for each text of a row of
    texts its number among all texts of the batch, if each packed sequence had the width of
    `cls_positions`. Output, float32: vectors (rows, texts, width), or scores (rows, texts).
    """
    packed_texts = packed(model)
    inputs = dict(packed_texts.input)
    inputs["text_numbers"] = _input("text_numbers")
    x = GatherTexts(name="gather_texts")(packed_texts.output, inputs["text_numbers"])
    if not registry.for_model(model).compares_vectors:
        x = x[:, :, 0]
    return keras.Model(inputs, x, name=name)


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
    """Return True if a model can be packed: an unchanged classifier, regressor, tagger or embedder.

    `packed` would lose what a user added to a model, such as another attention mask. A
    pooling layer must have the mode "mean".
    """
    task = registry.find(model)
    if task is None or not task.packs or has_choices(model):
        return False
    has_pooling = _has_pooling(model)
    if has_pooling:
        pooling = model.get_layer(_POOLING)
        if not isinstance(pooling, SentencePooling) or pooling.mode != "mean":
            return False
    encoder, *head = _operations(model)
    if not isinstance(encoder, BertEncoder) or not _is_known_head(head, task, has_pooling):
        return False
    if not isinstance(model.input, dict) or set(model.input) != set(encoder.input):
        return False
    # The head must read the default output of the encoder, not, for example, a lower layer.
    tensor = model.output
    for operation in reversed(head):
        parents = keras_private.parent_tensors(tensor)
        is_next = keras_private.producing_operation(tensor) is operation
        if not is_next or (len(parents) > 1 and operation.name != _POOLING):
            return False
        tensor = parents[0]
    if keras_private.producing_operation(tensor) is not encoder:
        return False
    paths = [path for path, _ in keras.tree.flatten_with_path(encoder.output)]
    reads_sequence = task.positions_have_targets or has_pooling
    key = "sequence_output" if reads_sequence else "pooled_output"
    return paths[keras_private.output_index(tensor)] == (key,)


def _is_known_head(operations, task, has_pooling):
    """Return True if the operations after the encoder are those of the task's head."""
    names = [operation.name for operation in operations]
    if task.compares_vectors:  # between the pooling and the output are layers of the user
        are_layers = all(isinstance(operation, keras.layers.Layer) for operation in operations)
        return are_layers and names[:1] == [_POOLING] and names[-1:] == ["output"]
    return names == [*([_POOLING] if has_pooling else []), *_HEAD_LAYERS]


def _operations(model):
    """Return the operations of a model without its inputs; those of `keras.ops` are no layers."""
    return [x for x in model.operations if not isinstance(x, keras.layers.InputLayer)]


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
