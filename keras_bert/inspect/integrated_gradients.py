"""Integrated gradients: how much each token adds to an output of a model."""

import dataclasses
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import heads, keras_private
from keras_bert.inspect import drawing
from keras_bert.inspect.encoding import encode_text
from keras_bert.layers.pooling import unit_length
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.gradients import value_and_gradient
from keras_bert.tasks import registry
from keras_bert.tasks.masked_tokens.masks import MASK

_TOKENS_PER_BATCH = 2048  # bounds the memory: a batch keeps the activations of all layers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, eq=False)
class Attributions:
    """Scores of the tokens of one text or pair. A notebook shows the text with colored words.

    Attributes:
        target: What the scores add up to: a label, a token for [MASK], `"score"`, or `"start"` or
            `"end"` of an answer.
        tokens: List of the tokens, with [CLS] and [SEP].
        scores: float32 array (tokens,). A positive score raises the logit of the target.
        words: List of dicts with `text`, `start` and `end` (characters), and `score`, the sum over
            the tokens of the word. Words of the second text of a pair have `pair`: True.
        word_scores: float32 array (words,), the scores of `words`.
        texts: Tuple of the text, or of both texts of a pair.
        position: Index of the token whose tag, span or [MASK] is explained, or `None`.
        logit: Logit of the target for the text.
        baseline_logit: Logit of the target for the baseline.
        error: Sum of the scores minus (`logit` - `baseline_logit`). With exact integrals, it is 0.

    Example:

    >>> found = Attributions(target="yes", tokens=["[CLS]", "good", "[SEP]"],
    ...     scores=np.array([0, 2, 0], np.float32), texts=("good",), position=None, logit=3.0,
    ...     baseline_logit=1.0, words=[{"text": "good", "start": 0, "end": 4, "score": 2.0}])
    >>> found.error, found.word_scores.tolist()
    (0.0, [2.0])
    """

    target: str
    tokens: list
    scores: np.ndarray
    words: list
    texts: tuple
    position: int | None
    logit: float
    baseline_logit: float

    @property
    def word_scores(self):
        """The scores of the words, float32 (words,)."""
        return np.array([word["score"] for word in self.words], np.float32)

    @property
    def error(self):
        """Sum of the scores minus (`logit` - `baseline_logit`)."""
        return float(self.scores.sum(dtype=np.float64)) - (self.logit - self.baseline_logit)

    def __repr__(self):
        words = printable(", ".join(f"{word['text']} {word['score']:+.2f}" for word in self.words))
        return f"Attributions(target={self.target!r}, words: {words}, error={self.error:+.1e})"

    def plot(self) -> "Figure":
        """Draw the score of each word as a bar; return a `matplotlib.figure.Figure`."""
        return drawing.plot_words(self)

    def _repr_html_(self):
        return drawing.attributions_html(self)


def attributions(
    model: keras.Model,
    text: str,
    text_pair: str | None = None,
    target: Any = None,
    *,
    steps: int = 50,
) -> Attributions:
    """Return how much each word of one text or pair adds to an output of a model.

    The method is integrated gradients on the word embeddings, along the line from a baseline to the
    text. The baseline has the embedding of [PAD] at each token of the text: a text of this length
    without words. [CLS], [SEP], [MASK], positions and segments stay as they are, so these tokens
    get 0. A vector of zeros would be no token that the model knows.

    Gauss-Legendre quadrature computes the integrals. The scores add up to the difference between
    the logits for the text and for the baseline; `error` says how exactly. If `error` is too large,
    give more steps.

    Source: Sundararajan, Taly and Yan (2017), "Axiomatic Attribution for Deep Networks".

    Args:
        model: A model of `keras_bert.heads`.
        text: A string.
        text_pair: The second text of a pair: for question answering the context, for multiple
            choice one of the choices.
        target: The output to explain. Classes: a label or its index, by default the most probable
            one. Tags: the index of a word, or a tuple of it and a tag, by default the predicted
            tag. Question answering: `"start"` (default) or `"end"`, at its most probable token of
            the context. Masked tokens: a token for the first [MASK], by default the most probable
            one, or a tuple of the index of a [MASK] and a token. Embeddings: another text; the
            output is the cosine similarity to it. For a number and a choice, `None`.
        steps: Number of points at which the gradient is computed.

    Returns:
        An `Attributions` with `tokens`, `scores`, `words`, `word_scores`, `target` and `error`.

    Raises:
        ValueError: If the model has no head, the target does not exist, or `steps` is below 1; and
            as from `attention`.

    Warns:
        UserWarning: If the text is longer than the model's maximum. It is truncated.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model = heads.classifier(encoder, labels=["no", "yes"])
    >>> found = attributions(model, "so good", target="yes")
    >>> found.tokens, [word["text"] for word in found.words], abs(found.error) < 1e-5
    (['[CLS]', '[UNK]', 'good', '[SEP]'], ['so', 'good'], True)
    """
    steps = as_integer("steps", steps, 1)
    encoded = encode_text(model, text, text_pair)
    task = registry.find(model)
    if task is None:
        raise ValueError(f"{model.name!r} has no head of a task; use keras_bert.inspect.attention")
    name, select, position = task.target(Explained(model, encoded), target)
    ids = encoded.inputs["input_word_ids"]
    ids_of_baseline = ids.copy()
    for word in encoded.words:
        ids_of_baseline[0, word.positions] = encoded.pad_id
    end = _word_embeddings(model, ids)  # (seq, hidden)
    start = _word_embeddings(model, ids_of_baseline)
    nodes, weights = np.polynomial.legendre.leggauss(steps)  # of the interval from -1 to 1
    # The logits at both ends come from the same batches. Their gradients have weight 0.
    alphas = np.concatenate([[0], (nodes + 1) / 2, [1]])
    weights = np.concatenate([[0], weights / 2, [0]])
    logits, gradient = _integrate(model, encoded.inputs, select, start, end, alphas, weights)
    scores = ((end - start) * gradient).sum(axis=1)
    words = [_scored_word(word, encoded, scores) for word in encoded.words]
    return Attributions(
        target=name, tokens=encoded.tokens, scores=scores.astype(np.float32), words=words,
        texts=encoded.texts, position=position, logit=float(logits[0]),
        baseline_logit=float(logits[1]),
    )  # fmt: skip


def _scored_word(word, encoded, scores):
    """Return a word of `Attributions`, a dict."""
    scored = {
        "text": encoded.texts[word.text][word.start : word.end],
        "start": word.start,
        "end": word.end,
        "score": float(scores[word.positions].sum()),
    }
    return scored | ({"pair": True} if word.text else {})


def _word_embeddings(model, ids):
    """Return the word embeddings of ids (1, seq), float64 (seq, hidden)."""
    layer = heads.find_encoder(model).get_layer("embeddings").word_embeddings
    embeddings = layer(keras.ops.convert_to_tensor(ids))
    return keras.ops.convert_to_numpy(keras.ops.cast(embeddings, "float32"))[0].astype(np.float64)


def _integrate(model, inputs, select, start, end, alphas, weights):
    """Integrate the gradient of the selected logit along the line from `start` to `end`.

    Returns:
        The logits at `end` and at `start`, and the weighted sum of the gradients at `alphas`,
        float64 (seq, hidden).
    """
    size = max(1, _TOKENS_PER_BATCH // len(end))
    logits = []
    total = np.zeros_like(end)
    for first in range(0, len(alphas), size):
        part = alphas[first : first + size, None, None]
        points = (start + part * (end - start)).astype(np.float32)  # (points, seq, hidden)
        repeated = {name: np.repeat(value, len(part), axis=0) for name, value in inputs.items()}

        def compute(points, repeated=repeated):
            return select(_outputs(model, repeated, points))

        # The value of a row depends on no other row.
        values, gradients = value_and_gradient(compute, points)
        logits.append(values)
        total += np.tensordot(weights[first : first + size], gradients, axes=1)
    logits = np.concatenate(logits)
    return (logits[-1], logits[0]), total


def _outputs(model, inputs, word_embeddings=None):
    """Return the outputs of a model for arrays (batch, seq), and for word embeddings if given."""
    encoder = heads.find_encoder(model)
    if len(model.inputs[0].shape) == 3:
        inputs = {name: value[:, None] for name, value in inputs.items()}  # one choice per text

    def encode(given, **options):
        if word_embeddings is not None:
            given = {**given, "word_embeddings": word_embeddings}
        return encoder(given, **options)

    inputs = {name: keras.ops.convert_to_tensor(value) for name, value in inputs.items()}
    return keras_private.run_with(model, inputs, {encoder: encode})


class Explained:
    """A text that a model has read, for `Task.target`.

    Attributes:
        output: The `layers.TaskOutput` of the model.
        words: The words of the text, `encoding.Word`s.
        vocabulary: The tokens.
    """

    def __init__(self, model, encoded):
        self._model = model
        self._encoded = encoded
        self.output = heads.find_output(model)
        self.words = encoded.words
        self.vocabulary = heads.find_encoder(model).preprocessor.vocabulary

    def outputs(self, encoded=None):
        """Return the outputs for the text, NumPy arrays without the batch dimension."""
        outputs = _outputs(self._model, (encoded or self._encoded).inputs)
        return keras.tree.map_structure(lambda x: keras.ops.convert_to_numpy(x)[0], outputs)

    def number(self, target):
        """Return name, function and position for a model with one number per text."""
        if target is not None:
            raise ValueError(
                f"{self._model.name!r} returns a number; remove target={shown(target)}"
            )
        return "score", lambda scores: scores[:, 0], None

    def word(self, index):
        """Return a word by its index."""
        if isinstance(index, int) and index < len(self.words):
            return self.words[index]
        text = self._encoded.texts[0]
        words = [f"{i} {text[word.start : word.end]}" for i, word in enumerate(self.words[:20])]
        raise ValueError(
            f"target must be the index of a word, or a tuple of it and a tag; received "
            f"{shown(index)}. The words are {printable(', '.join(words)) or 'none'}"
        )

    def index_of_label(self, target):
        """Return the index of a label, which is given by name or by index."""
        labels = self.output.labels
        if target in labels:
            return labels.index(target)
        if isinstance(target, (int, np.integer)) and 0 <= target < len(labels):
            return int(target)
        raise ValueError(
            f"target must be a label or its index; received {shown(target)}. The labels are "
            f"{', '.join(labels[:20])}"
        )

    def mask_positions(self, index, target):
        """Return the positions of the masks; raise an error unless `index` is one of them."""
        positions = self._encoded.inputs["masked_lm_positions"][0]
        if not isinstance(index, int) or not 0 <= index < len(positions):
            raise ValueError(
                f"target must be a token, or a tuple of the index of a {MASK} and a token; "
                f"received {shown(target)}. The text has {len(positions)} {MASK} in its first "
                f"{len(self._encoded.tokens)} tokens"
            )
        return positions

    def cosine_to(self, text):
        """Return a function from vectors (batch, width) to their cosine with that of a text."""
        vector = unit_length(self.outputs(encode_text(self._model, text)))
        return lambda vectors: keras.ops.sum(unit_length(vectors) * vector, axis=-1)
