"""The signatures of multiple choice."""

import tensorflow as tf

from keras_bert.tasks.text_serving import Signatures, strings
from keras_bert.text import windows_graph


def multiple_choice(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.multiple_choice`.

    Inputs of `serving_default`:
        text: string (batch,)
        choices: string (batch, choices)
    Inputs of `ids`:
        the model's inputs, int32 (batch, choices, seq)
    Outputs:
        choice: int32 (batch,), index of the most probable choice
        probabilities: float32 (batch, choices)
    """

    def best_choice(logits):
        probabilities = tf.nn.softmax(logits)  # (batch, choices)
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"choice": choice, "probabilities": probabilities}

    def from_ids(inputs):
        return best_choice(predict(inputs))

    def from_strings(text, choices):
        batch, count = tf.unstack(tf.shape(choices))
        tokenize = preprocessor.tokenizer.tokenize
        tokens = tokenize(text)

        def score(chunk):
            packed = preprocessor.pack(
                tf.gather(tokens, chunk["row"]),
                tokenize(chunk["choice"]),
                sequence_length=None,
                max_sequence_length=max_sequence_length,
            )
            inputs = {key: value[:, None] for key, value in packed.items()}  # (chunk, 1, seq)
            return {"logits": predict(inputs)}  # (chunk, 1)

        # Sequences are packed chunk by chunk too, because each choice needs a copy of its text.
        logits = windows_graph.map_in_chunks(
            score,
            {"row": tf.repeat(tf.range(batch), count), "choice": tf.reshape(choices, [-1])},
            {"logits": tf.TensorSpec([None, 1], tf.float32)},
        )["logits"]
        return best_choice(tf.reshape(logits, [batch, count]))

    choices = tf.TensorSpec([None, None], tf.string, name="choices")
    return Signatures(from_strings, [strings("text"), choices], from_ids)
