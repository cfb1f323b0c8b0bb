"""Diagrams of the documentation. `pictures.py` writes them as files."""

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from docs.charts import BLUE, COLORS, GRAY, GREEN, ORANGE, PURPLE

# Layer 1, head 8 of MiniLM for "The bank of the river was muddy", from
# `keras_bert.inspect.attention(keras_bert.load("minilm"), text).weights[1, 8].round(2)`.
TOKENS = ["[CLS]", "the", "bank", "of", "the", "river", "was", "muddy", "[SEP]"]
WEIGHTS = [
    [0.88, 0.01, 0.01, 0.01, 0.02, 0.02, 0.01, 0.02, 0.02],
    [0.19, 0.06, 0.73, 0, 0, 0, 0, 0.01, 0],
    [0.26, 0, 0.05, 0.68, 0.01, 0, 0, 0, 0.01],
    [0.1, 0, 0, 0, 0.89, 0.01, 0, 0, 0],
    [0.12, 0, 0, 0, 0.05, 0.83, 0, 0, 0],
    [0.61, 0.02, 0, 0, 0, 0.14, 0.21, 0.02, 0],
    [0.15, 0, 0.02, 0, 0, 0, 0.02, 0.79, 0.01],
    [0.77, 0, 0, 0, 0, 0, 0, 0.02, 0.2],
    [0.9, 0, 0, 0, 0.01, 0, 0, 0, 0.09],
]


def architecture():
    """Draw the layers from token ids to the outputs."""
    figure, axes = _blank(7, 5.2)
    axes.set(xlim=(0, 7), ylim=(0, 5.2))
    for x, name in ((0.2, "input_word_ids"), (2.45, "input_mask"), (4.7, "input_type_ids")):
        _box(axes, x, 0.1, 2.1, name, GRAY)
        if name != "input_mask":
            _arrow(axes, x + 1.05, 0.5, 3.5, 0.95)
    _box(axes, 0.2, 0.95, 6.6, "embeddings: word + position + type, LayerNorm", BLUE)
    _arrow(axes, 3.5, 1.35, 3.5, 1.75)
    axes.add_patch(Rectangle((0.1, 1.65), 6.8, 1.45, fill=False, edgecolor=GRAY, linestyle="--"))
    _box(axes, 0.2, 1.75, 6.2, "self-attention within input_mask, residual, LayerNorm", ORANGE)
    _arrow(axes, 3.3, 2.15, 3.3, 2.6)
    _box(axes, 0.2, 2.6, 6.2, "feed-forward with GELU, residual, LayerNorm", ORANGE)
    axes.text(6.65, 2.38, "× layers", rotation=90, ha="center", va="center", size=10)
    _arrow(axes, 1.7, 3.0, 1.7, 3.5)
    _arrow(axes, 5.2, 3.0, 5.2, 3.5)
    _box(axes, 0.2, 3.5, 3.0, "pooler: dense, tanh on [CLS]", GREEN)
    _box(axes, 3.7, 3.5, 3.1, "sequence_output", GRAY)
    _arrow(axes, 1.7, 3.9, 1.7, 4.3)
    _arrow(axes, 5.2, 3.9, 5.2, 4.3)
    _box(axes, 0.2, 4.3, 3.0, "classes, next sentence", GREEN)
    _box(axes, 3.7, 4.3, 3.1, "tags, answers, masked tokens", GREEN)
    return figure


def packing():
    """Draw a batch without and with packing."""
    figure, axes = _blank(7, 2.6)
    axes.set(xlim=(0, 17), ylim=(0, 7.2))
    lengths, colors = (8, 3, 5, 2, 6), (BLUE, ORANGE, GREEN, GRAY, PURPLE)
    axes.text(0, 6.6, "5 rows of 8, 16 positions of padding", size=10)
    axes.text(9, 6.6, "3 rows of 8, no padding", size=10)
    for row, (length, color) in enumerate(zip(lengths, colors, strict=True)):
        for column in range(8):
            _cell(axes, column, 5 - row, color if column < length else None)
    # Text, its row and its first position.
    places = ((0, 0, 0), (2, 1, 0), (1, 1, 5), (4, 2, 0), (3, 2, 6))
    for text, row, first in places:
        for column in range(lengths[text]):
            _cell(axes, 9 + first + column, 5 - row, colors[text])
    return figure


def attention():
    """Draw the weights of a head of MiniLM."""
    figure, axes = _blank(4.4, 4.2)
    size = len(TOKENS)
    axes.set(xlim=(-1.8, size + 0.2), ylim=(-0.2, size + 1.6))
    for row, (token, weights) in enumerate(zip(TOKENS, WEIGHTS, strict=True)):
        y = size - 1 - row
        axes.text(-0.2, y + 0.5, token, ha="right", va="center", size=10)
        axes.text(row + 0.5, size + 0.2, token, ha="center", rotation=90, size=10)
        for column, weight in enumerate(weights):
            patch = Rectangle((column, y), 1, 1, facecolor=BLUE, alpha=weight, edgecolor="none")
            axes.add_patch(patch)
            axes.add_patch(Rectangle((column, y), 1, 1, fill=False, edgecolor=GRAY, linewidth=0.4))
    return figure


def pair():
    """Draw the input of a model for pairs."""
    tokens = ["[CLS]", "the", "remote", "is", "dead", "[SEP]", "my", "remote", "fails", "[SEP]"]
    figure, axes = _blank(7.4, 1.7)
    axes.set(xlim=(-3, 10), ylim=(-0.2, 3.2))
    rows = (("tokens", tokens), ("input_type_ids", [0] * 6 + [1] * 4), ("input_mask", [1] * 10))
    for row, (name, values) in enumerate(rows):
        axes.text(-0.2, 2.45 - row, name, ha="right", va="center", size=9)
        for column, value in enumerate(values):
            color = (BLUE if column < 6 else ORANGE) if row < 2 else None
            _token(axes, column, 2 - row, value, color)
    return figure


def multiple_choice():
    """Draw how a model scores the choices of a text."""
    figure, axes = _blank(7.4, 2)
    axes.set(xlim=(0, 7.4), ylim=(0, 2))
    for row, (choice, score) in enumerate(
        (("Says thanks", "score 1"), ("Question about a charge", "score 2"),
         ("Wants to cancel", "score 3"))
    ):  # fmt: skip
        y = 1.5 - 0.65 * row
        _box(axes, 0.05, y, 3.6, f"I was charged twice | {choice}", BLUE)
        _arrow(axes, 3.65, y + 0.2, 4.0, y + 0.2)
        _box(axes, 4.0, y, 0.9, "BERT", ORANGE)
        _arrow(axes, 4.9, y + 0.2, 5.2, y + 0.2)
        _box(axes, 5.2, y, 0.85, score, GRAY)
        _arrow(axes, 6.05, y + 0.2, 6.4, 1.05)
    _box(axes, 6.4, 0.85, 0.95, "softmax", GREEN)
    return figure


def masking():
    """Draw the input and the labels of the masked LM for one sentence."""
    figure, axes = _blank(7.4, 1.9)
    axes.set(xlim=(-2.6, 12), ylim=(-0.2, 3.2))
    texts = ["[CLS]", *"my parcel has not come yet and i need it".split(), "[SEP]"]  # noqa: SIM905
    read = [*texts]
    read[2], read[5], read[9] = "[MASK]", "[MASK]", "apple"
    labels = {2: "parcel", 5: "come", 9: "need"}
    rows = (
        ("text", texts),
        ("input_word_ids", read),
        ("to predict", [labels.get(i, "") for i in range(len(texts))]),
    )
    for row, (name, values) in enumerate(rows):
        axes.text(-0.2, 2.45 - row, name, ha="right", va="center", size=9)
        for column, value in enumerate(values):
            color = (GREEN if row == 2 else ORANGE) if column in labels and row else None
            if value:
                _token(axes, column, 2 - row, value, color)
    return figure


def keras_model():
    """Draw a functional model from strings to logits, with the shapes."""
    figure, axes = _blank(7.4, 2.3)
    axes.set(xlim=(0, 7.4), ylim=(0, 2.3))
    _box(axes, 0.05, 1.0, 1.15, "text", GRAY)
    _box(axes, 1.6, 1.0, 1.5, "bert.preprocessor", BLUE, size=9)
    _box(axes, 3.6, 1.0, 1.15, "bert", ORANGE)
    _box(axes, 5.3, 1.0, 1.9, "your Keras layers", GREEN)
    for x, to_x in ((1.2, 1.6), (3.1, 3.6), (4.75, 5.3)):
        _arrow(axes, x, 1.2, to_x, 1.2)
    for x, y, text in (
        (0.62, 0.72, "(batch,)\nstrings"), (3.35, 0.72, "3 x (batch, seq)\nint32"),
        (5.0, 0.72, "(batch, hidden)\n(batch, seq, hidden)"),
        (6.35, 1.75, "any loss and optimizer of Keras"),
        (2.35, 1.75, "runs in tf.data or in the model"),
    ):  # fmt: skip
        axes.text(x, y, text, ha="center", va="top", size=8)
    return figure


def training_step():
    """Draw what a training loop does with a batch."""
    figure, axes = _blank(7.4, 1.5)
    axes.set(xlim=(0, 7.4), ylim=(0.1, 1.6))
    names = ("batch", "model", "loss", "gradients", "optimizer")
    colors = (GRAY, ORANGE, BLUE, BLUE, GREEN)
    for index, (name, color) in enumerate(zip(names, colors, strict=True)):
        x = 0.1 + 1.5 * index
        _box(axes, x, 0.9, 1.1, name, color)
        if index < 4:
            _arrow(axes, x + 1.1, 1.1, x + 1.5, 1.1)
    axes.plot([6.65, 6.65, 2.15], [0.9, 0.45, 0.45], color=GRAY, lw=1)
    _arrow(axes, 2.15, 0.45, 2.15, 0.9)
    axes.text(4.4, 0.3, "new weights", ha="center", va="center", size=9)
    return figure


def devices():
    """Draw data parallelism: each device computes a part of the batch."""
    figure, axes = _blank(7.4, 2.6)
    axes.set(xlim=(0, 7.4), ylim=(0, 2.6))
    _box(axes, 0.05, 1.1, 1.3, "32 texts", GRAY)
    for index in range(4):
        y = 2.1 - 0.63 * index
        _arrow(axes, 1.35, 1.3, 1.75, y + 0.2)
        _box(axes, 1.75, y, 2.9, f"device {index + 1}: 8 texts, all weights", COLORS[index])
        _arrow(axes, 4.65, y + 0.2, 5.05, 1.3)
    _box(axes, 5.05, 1.1, 2.25, "mean of the gradients", GREEN)
    return figure


def windows():
    """Draw the ways to read a text that is longer than the model's maximum."""
    figure, axes = _blank(7.4, 1.9)
    axes.set(xlim=(-3.2, 10.2), ylim=(-0.3, 4.2))
    axes.add_patch(Rectangle((0, 3.1), 10, 0.7, facecolor=GRAY, alpha=0.5))
    axes.text(-0.2, 3.45, "the text", ha="right", va="center", size=9)
    axes.text(-0.2, 2.25, "truncate", ha="right", va="center", size=9)
    axes.add_patch(Rectangle((0, 1.9), 4, 0.7, facecolor=BLUE, alpha=0.7))
    axes.text(-0.2, 0.75, "window", ha="right", va="center", size=9)
    for index, start in enumerate((0, 2, 4, 6)):
        y = 0.8 - 0.45 * (index % 2)
        axes.add_patch(Rectangle((start, y), 4, 0.4, facecolor=COLORS[index], alpha=0.7))
    return figure


def signature():
    """Draw what an exported model contains."""
    figure, axes = _blank(7.4, 1.7)
    axes.set(xlim=(0, 7.4), ylim=(0, 1.7))
    axes.add_patch(Rectangle((1.35, 0.25), 4.6, 1.2, fill=False, edgecolor=GRAY, linestyle="--"))
    axes.text(3.65, 1.28, "SavedModel", ha="center", va="center", size=9)
    _box(axes, 0.05, 0.5, 1.0, "text", GRAY)
    for x, width, name, color in (
        (1.5, 1.2, "tokenizer", BLUE), (2.95, 1.0, "BERT", ORANGE), (4.2, 0.7, "head", GREEN),
        (5.1, 0.75, "softmax", PURPLE),
    ):  # fmt: skip
        _box(axes, x, 0.5, width, name, color, size=9)
    for x, to_x in ((1.05, 1.5), (2.7, 2.95), (3.95, 4.2), (4.9, 5.1), (5.85, 6.2)):
        _arrow(axes, x, 0.7, to_x, 0.7)
    axes.text(6.25, 0.7, "label, score,\nprobabilities", va="center", size=9)
    return figure


def serving():
    """Draw the parts of a deployment with TensorFlow Serving."""
    figure, axes = _blank(7.4, 2)
    axes.set(xlim=(0, 7.4), ylim=(0, 2))
    _box(axes, 0.05, 1.35, 1.5, "REST, port 8501", BLUE)
    _box(axes, 0.05, 0.45, 1.5, "gRPC, port 8500", BLUE)
    axes.add_patch(Rectangle((2.0, 0.15), 2.35, 1.75, fill=False, edgecolor=GRAY, linestyle="--"))
    axes.text(3.17, 1.72, "TensorFlow Serving", ha="center", va="center", size=9)
    _box(axes, 2.15, 1.05, 2.05, "joins requests in batches", ORANGE, size=9)
    _box(axes, 2.15, 0.35, 2.05, "loads new versions", ORANGE, size=9)
    _box(axes, 4.9, 1.2, 2.35, "saved_models/support/1", GREEN)
    _box(axes, 4.9, 0.45, 2.35, "saved_models/support/2", GREEN)
    for x, y, to_x, to_y in (
        (1.55, 1.55, 2.0, 1.3), (1.55, 0.65, 2.0, 0.9), (4.9, 1.4, 4.35, 1.25),
        (4.9, 0.65, 4.35, 0.7),
    ):  # fmt: skip
        _arrow(axes, x, y, to_x, to_y)
    return figure


def _blank(width, height):
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    return figure, axes


def _box(axes, x, y, width, text, color, size=10):
    box = FancyBboxPatch(
        (x, y), width, 0.4, boxstyle="round,pad=0,rounding_size=0.08", fill=False, edgecolor=color
    )
    axes.add_patch(box)
    axes.text(x + width / 2, y + 0.2, text, ha="center", va="center", color=color, size=size)


def _arrow(axes, x, y, to_x, to_y):
    arrow = {"arrowstyle": "->", "color": GRAY, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (to_x, to_y), (x, y), arrowprops=arrow)


def _cell(axes, x, y, color):
    axes.add_patch(
        Rectangle(
            (x, y), 0.9, 0.9, facecolor=color or "none", edgecolor=GRAY, linewidth=0.5, alpha=0.8
        )
    )


def _token(axes, x, y, value, color):
    axes.add_patch(
        Rectangle(
            (x + 0.03, y), 0.94, 0.9, facecolor=color or "none", edgecolor=GRAY, lw=0.5, alpha=0.6
        )
    )
    axes.text(x + 0.5, y + 0.45, value, ha="center", va="center", size=8)
