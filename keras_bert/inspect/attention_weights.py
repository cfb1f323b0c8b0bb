"""Attention weights of every layer and head for one text."""

import dataclasses
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_bert import heads
from keras_bert.inspect import drawing
from keras_bert.inspect.encoding import encode_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, eq=False)
class Attention:
    """Attention weights of one text or pair. A notebook shows a heat map per layer and head.

    Attributes:
        tokens: List of the tokens, with [CLS] and [SEP].
        weights: float32 array (layers, heads, queries, keys). `weights[l, h, i, j]` is how much
            token `i` attends to token `j`; the sum over `j` is 1.

    Example:

    >>> seen = Attention(["[CLS]", "[SEP]"], np.full((1, 2, 2, 2), 0.5, np.float32))
    >>> seen
    Attention(tokens=['[CLS]', '[SEP]'], weights of 1 layers, 2 heads)
    """

    tokens: list
    weights: np.ndarray

    def __repr__(self):
        layers, count = self.weights.shape[:2]
        return f"Attention(tokens={self.tokens}, weights of {layers} layers, {count} heads)"

    def plot(self, layer: int | None = None, head: int | None = None) -> "Figure":
        """Draw the weights.

        Args:
            layer: Index of a layer, or `None` for a grid of all layers and heads.
            head: Index of a head of that layer, or `None` for the mean over its heads.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ValueError: If `head` is given without `layer`.
            IndexError: If the layer or head does not exist.
        """
        if layer is None:
            if head is not None:
                raise ValueError(f"head needs a layer; received head={head}. Give layer=")
            return drawing.plot_heads(self.weights)
        weights = self.weights[layer]
        if head is None:
            title = f"Layer {layer}, mean of {len(weights)} heads"
            return drawing.plot_weights(self.tokens, weights.mean(axis=0), title)
        return drawing.plot_weights(self.tokens, weights[head], f"Layer {layer}, head {head}")

    def _repr_html_(self):
        return drawing.attention_html(self)


def attention(model: keras.Model, text: str, text_pair: str | None = None) -> Attention:
    """Return the attention weights of all layers and heads for one text or pair.

    The weights are computed by the model's own layers from their inputs. The text is not padded.

    Source: `softmax(QK' / sqrt(d))` in Vaswani et al. (2017), section 3.2.1; Clark et al. (2019),
    "What Does BERT Look At?", on reading it.

    Args:
        model: A `BertEncoder`, or a model with one, whose encoder has a preprocessor.
        text: A string.
        text_pair: The second text of a pair: for question answering the context, for multiple
            choice one of the choices.

    Returns:
        An `Attention` with `tokens` and `weights`.

    Raises:
        ValueError: If an argument has another type, the encoder has no preprocessor, or the model
            reads pairs and `text_pair` is missing, or the reverse.

    Warns:
        UserWarning: If the text is longer than the model's maximum. It is truncated.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=3,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> seen = attention(encoder, "good")
    >>> seen.tokens, seen.weights.shape
    (['[CLS]', 'good', '[SEP]'], (3, 2, 3, 3))
    """
    encoded = encode_text(model, text, text_pair)
    return Attention(encoded.tokens, _weights(heads.find_encoder(model), encoded.inputs))


def _weights(encoder, inputs):
    """Return the weights of all layers for a batch of one, float32 (layers, heads, seq, seq)."""
    inputs = {name: keras.ops.convert_to_tensor(inputs[name]) for name in encoder.input}
    embedded = encoder.get_layer("embeddings")(
        inputs["input_word_ids"], inputs["input_type_ids"], training=False
    )
    outputs = encoder(inputs, training=False)["encoder_outputs"]
    weights = []
    for index, hidden_states in enumerate([embedded, *outputs[:-1]]):
        layer = encoder.get_layer(f"layer_{index}").attention
        weights.append(keras.ops.convert_to_numpy(layer.probabilities(hidden_states))[0])
    return np.stack(weights)
