"""The signatures of embedders."""

import tensorflow as tf

from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.text_serving import of_texts, strings


def embedder(predict, output, preprocessor, max_sequence_length, prompt=None):
    """Make the signatures of `heads.embedder`.

    Inputs of `serving_default`:
        text: string (batch,); `prompt` comes before it, by default the model's default prompt
    Outputs:
        embedding: float32 (batch, width)
    """
    return of_texts(
        output,
        preprocessor,
        max_sequence_length,
        predict,
        answer=lambda vectors: {"embedding": vectors},
        prompt=prompt_of(output, prompt),
    )


def embedder_with_prompts(predict, output, preprocessor, max_sequence_length):
    """Make the signature `with_prompt` of a model of `heads.embedder` that has prompts.

    Inputs:
        text: string (batch,)
        prompt_name: string (batch,), names of the model's prompts; "" for none
    Outputs:
        embedding: float32 (batch, width)
    """
    plain = embedder(predict, output, preprocessor, max_sequence_length, prompt="")
    names = tf.constant(["", *output.prompts])
    texts = tf.constant(["", *output.prompts.values()])
    message = f"prompt_name must be one of {', '.join(output.prompts)}, or empty; received"

    def from_strings(text, prompt_name):
        is_name = tf.equal(prompt_name[:, None], names)  # (batch, prompts)
        is_known = tf.reduce_all(tf.reduce_any(is_name, axis=1))
        check = tf.debugging.Assert(is_known, [message, prompt_name])
        with tf.control_dependencies([check]):
            prompt = tf.gather(texts, tf.argmax(tf.cast(is_name, tf.int32), axis=1))
        return plain.from_strings(tf.strings.join([prompt, text]))

    return from_strings, [strings("text"), strings("prompt_name")]
