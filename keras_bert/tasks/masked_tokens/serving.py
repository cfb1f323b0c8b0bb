"""The signatures of masked language models."""

import tensorflow as tf

from keras_bert.tasks.masked_tokens.masks import MASK
from keras_bert.tasks.text_serving import Signatures, strings
from keras_bert.text import windows_graph

_TOP = 5  # candidates for each masked token


_MAX_LOGITS = 2**26  # maximum logits per call of a masked language model (256 MB)


def masked_lm(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.masked_lm`.

    Inputs of `serving_default`:
        text: string (batch,), with [MASK] for each token to predict
    Outputs of `serving_default`:
        candidates: string (batch, masked tokens, 5), the most probable tokens, best first
        scores: float32 (batch, masked tokens, 5), their probabilities
    Inputs of `ids`:
        the model's inputs, with `masked_lm_positions`, int32 (batch, masked tokens)
    Outputs of `ids`:
        logits: float32 (batch, masked tokens, vocab_size)
    """
    if MASK not in preprocessor.vocabulary:
        raise ValueError(f"a masked language model needs {MASK} in its vocabulary")
    vocabulary = tf.constant(preprocessor.vocabulary)
    top = min(_TOP, len(preprocessor.vocabulary))
    max_positions = max(1, _MAX_LOGITS // output.output.shape[-1])

    def from_ids(inputs):
        with tf.control_dependencies(_check_positions(inputs, max_positions)):
            return {"logits": predict(inputs)}

    def best_tokens(inputs):
        logits = predict(inputs)
        probabilities = tf.nn.softmax(logits[:, :, : len(preprocessor.vocabulary)])
        scores, best = tf.math.top_k(probabilities, top)
        return {"scores": scores, "best": best}

    def from_strings(text):
        inputs = _pack_masked(preprocessor, max_sequence_length, text)
        positions = inputs["masked_lm_positions"]
        shape = [None, None, top]
        predicted = windows_graph.map_in_chunks(
            best_tokens,
            inputs,
            {"scores": tf.TensorSpec(shape, tf.float32), "best": tf.TensorSpec(shape, tf.int32)},
            chunk=tf.maximum(max_positions // tf.maximum(tf.shape(positions)[1], 1), 1),
        )
        is_masked = (positions > 0)[:, :, None]
        return {
            "candidates": tf.where(is_masked, tf.gather(vocabulary, predicted["best"]), ""),
            "scores": tf.where(is_masked, predicted["scores"], 0.0),
        }

    return Signatures(from_strings, [strings("text")], from_ids)


def _check_positions(inputs, max_positions):
    """Return assertions on `masked_lm_positions`."""
    positions = inputs["masked_lm_positions"]
    # The head gathers from all sequences of the batch, so an index that is too high would read
    # from another sequence.
    is_inside = (positions >= 0) & (positions < tf.shape(inputs["input_word_ids"])[1])
    inside = "masked_lm_positions must lie within the row of input_word_ids"
    # The logits of a small request could take many gigabytes.
    too_many = f"masked_lm_positions must be at most {max_positions} in a request"
    return [
        tf.debugging.Assert(tf.reduce_all(is_inside), [inside]),
        tf.debugging.Assert(tf.size(positions) <= max_positions, [too_many]),
    ]


def _pack_masked(preprocessor, max_sequence_length, text):
    """Return the inputs for texts with [MASK], including `masked_lm_positions`."""
    mask = preprocessor.tokenizer.token_id(MASK)
    parts = tf.strings.split(text, MASK)  # (batch, (parts))
    tokens = preprocessor.tokenizer.tokenize(parts.flat_values)
    masks = tf.fill([tokens.nrows(), 1], mask)
    tokens = parts.with_flat_values(tf.concat([tokens, masks], axis=1)).merge_dims(1, 2)
    tokens = tokens[:, :-1][:, : max_sequence_length - 2]  # no [MASK] after the last part
    packed = preprocessor.pack(
        tokens, sequence_length=None, max_sequence_length=max_sequence_length
    )
    positions = tf.ragged.range(tokens.row_lengths()) + 1  # after [CLS]
    positions = tf.ragged.boolean_mask(positions, tf.equal(tokens, mask))
    return {**packed, "masked_lm_positions": tf.cast(positions.to_tensor(), tf.int32)}
