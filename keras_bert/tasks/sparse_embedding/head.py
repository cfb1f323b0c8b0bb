"""The head that returns a sparse vector per text."""

from collections.abc import Mapping

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import SpladeHead, TaskOutput
from keras_bert.tasks.head_parts import encoder_inputs
from keras_bert.tasks.masked_tokens.head import head_options
from keras_bert.token_model import TokenModel

_HEAD = "masked_lm"  # name of the layer with the weights of the masked-LM head


def sparse_embedder(
    encoder: BertEncoder,
    *,
    tied: bool = True,
    prompts: Mapping[str, str] | None = None,
    default_prompt: str | None = None,
    name: str = "sparse_embedder",
) -> keras.Model:
    """Build a model that returns a weight for each token of the vocabulary, for search by terms.

    Most weights become 0 in training. A token with a weight is a term of the text. It need not
    occur in the text. `keras_bert.load(name, task="sparse_embedding")` gives the head the weights
    of a masked-LM head, from which the training should start.

    Source: Formal et al. (2021), SPLADE v2, section 3.1.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        tied: As for `masked_lm`.
        prompts: As for `embedder`.
        default_prompt: As for `embedder`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, vocab_size).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> sparse_embedder(encoder).output_shape
    (None, 9)
    """
    inputs = encoder_inputs(encoder)
    head = SpladeHead(**head_options(encoder, tied), name=_HEAD)
    x = head(encoder(inputs)["sequence_output"], inputs["input_mask"])  # (batch, vocab)
    output = TaskOutput(
        "sparse_embedding", prompts=prompts, default_prompt=default_prompt, similarity="dot",
        name="output",
    )  # fmt: skip
    return TokenModel(inputs, output(x), name=name)


def of_masked_lm(model: keras.Model, encoder: BertEncoder) -> keras.Model:
    """Return a sparse embedder on an encoder, with the head of a masked-LM model."""
    old = next((layer for layer in model.layers if layer.name == _HEAD), None)
    if old is None:
        raise ValueError(
            f"{model.name!r} has no masked-LM head, which a sparse embedder needs. Load one with "
            "keras_bert.load(name, task='sparse_embedding')"
        )
    embedder = sparse_embedder(encoder, tied=old.tied)
    embedder.get_layer(_HEAD).set_weights(old.get_weights())
    return embedder
