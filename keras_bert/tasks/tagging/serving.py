"""The signatures of taggers."""

import tensorflow as tf

from keras_bert.tasks.text_serving import Signatures, strings
from keras_bert.text import windows_graph


def tagger(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.tagger`.

    Inputs of `serving_default`:
        text: string (batch,)
    Outputs of `serving_default`:
        token: string (batch, words), each word as written in the text
        tag: string (batch, words)
        score: float32 (batch, words), probability of the tag
        start: int32 (batch, words), index of the word's first byte
        end: int32 (batch, words), index after the word's last byte
        count: int32 (batch,), number of words
    Outputs of `ids`:
        tag: string (batch, seq)
        score: float32 (batch, seq)
    """
    labels = tf.constant(output.labels)
    tokenize = preprocessor.tokenizer.tokenize_with_offsets
    if output.characters:
        tokenize = preprocessor.tokenizer.tokenize_characters_with_offsets

    def best_tags(logits):
        probabilities = tf.nn.softmax(logits)
        best = tf.argmax(probabilities, axis=-1)
        return {"tag": tf.gather(labels, best), "score": tf.reduce_max(probabilities, axis=-1)}

    def from_strings(text):
        tokens, words, starts, limits = tokenize(text)
        first = windows_graph.first_tokens(tokens, words)
        row = tf.gather(tokens.value_rowids(), first)
        ends = tf.concat([first, [tf.size(words.flat_values, tf.int64)]], axis=0)[1:]
        counts = tf.RaggedTensor.from_value_rowids(
            ends - first, row, tokens.nrows(), validate=False
        )
        split = windows_graph.split_between_words(tokens, counts, max_sequence_length - 2)
        logits = windows_graph.map_in_chunks(
            lambda chunk: {"logits": predict(chunk)},
            preprocessor.pack(
                split.tokens, sequence_length=None, max_sequence_length=max_sequence_length
            ),
            {"logits": tf.TensorSpec(output.output.shape, tf.float32)},
        )["logits"]  # (windows, seq, labels)

        # The tag of a word is the tag of its first token. The first position is [CLS].
        positions = tf.stack([split.window, split.position + 1], axis=1)
        start = tf.cast(tf.gather(starts.flat_values, first), tf.int32)
        end = tf.cast(tf.gather(limits.flat_values, ends - 1), tf.int32)
        outputs = {
            **best_tags(tf.gather_nd(logits, positions)),
            "token": _substrings(text, row, start, end),
            "start": start,
            "end": end,
        }
        padded = {name: counts.with_values(value).to_tensor() for name, value in outputs.items()}
        return {**padded, "count": tf.cast(counts.row_lengths(), tf.int32)}

    def from_ids(inputs):
        return best_tags(predict(inputs))

    return Signatures(from_strings, [strings("text")], from_ids)


def _substrings(texts, row, start, end):
    """Return the bytes `start` to `end` of the text in each `row`.

    The whole text is not copied for each of them.
    """
    parts = tf.strings.bytes_split(texts)
    begin = tf.gather(parts.row_starts(), row) + tf.cast(start, tf.int64)
    indices = tf.ragged.range(begin, begin + tf.cast(end - start, tf.int64))
    return tf.strings.reduce_join(tf.gather(parts.flat_values, indices), axis=1)
