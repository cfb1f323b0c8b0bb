"""Draw the pictures of the documentation: the layers of the model, packing, attention, speed.

Run `python docs/pictures.py` after a change. The colors are readable on light and dark pages.
"""

import io
import pathlib
import re

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

FOLDER = pathlib.Path(__file__).parent / "_static"
GRAY, BLUE, ORANGE, GREEN = "#808080", "#4c8bd0", "#d08a3c", "#4fa06a"

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


def write(folder=FOLDER):
    """Write the pictures that changed, as SVG files."""
    folder.mkdir(exist_ok=True)
    pictures = {
        "architecture": architecture, "packing": packing, "attention": attention, "speed": speed
    }  # fmt: skip
    for name, draw in pictures.items():
        svg = _svg(draw())
        path = folder / f"{name}.svg"
        # Sphinx reads pages again if the time of a picture has changed.
        if not path.exists() or path.read_bytes() != svg:
            path.write_bytes(svg)


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
    axes.text(6.65, 2.38, "× layers", rotation=90, ha="center", va="center", color=GRAY, size=10)
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
    lengths, colors = (8, 3, 5, 2, 6), (BLUE, ORANGE, GREEN, GRAY, "#a06fb8")
    axes.text(0, 6.6, "5 rows of 8, 16 positions of padding", color=GRAY, size=10)
    axes.text(9, 6.6, "3 rows of 8, no padding", color=GRAY, size=10)
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
        axes.text(-0.2, y + 0.5, token, ha="right", va="center", color=GRAY, size=10)
        axes.text(row + 0.5, size + 0.2, token, ha="center", rotation=90, color=GRAY, size=10)
        for column, weight in enumerate(weights):
            patch = Rectangle((column, y), 1, 1, facecolor=BLUE, alpha=weight, edgecolor="none")
            axes.add_patch(patch)
            axes.add_patch(Rectangle((column, y), 1, 1, fill=False, edgecolor=GRAY, linewidth=0.4))
    return figure


def speed():
    """Draw the ratios of times in the table of deploy/speed.md."""
    page = FOLDER.with_name("deploy") / "speed.md"
    table = re.findall(
        r"^\| (.+?) \| (SavedModel|ONNX) \| (.+?) \| ([\d.]+) \|$", page.read_text(), re.MULTILINE
    )
    figure = Figure(figsize=(7, 0.4 * len(table) + 0.6))
    axes = figure.add_axes((0.48, 0.1, 0.48, 0.82))
    axes.axvline(1, color=GRAY, linewidth=1)
    for row, (request, export, peer, ratio) in enumerate(reversed(table)):
        value = float(ratio)
        axes.barh(row, value, 0.6, color=GREEN if value < 1 else ORANGE)
        axes.text(value + 0.05, row, ratio, va="center", color=GRAY, size=9)
        text = f"{request.replace('`', '')}\n{export} and {peer.replace('`', '')}"
        axes.text(-0.08, row, text, ha="right", va="center", color=GRAY, size=7.5)
    axes.set(yticks=[], xlim=(0, 3), ylim=(-0.6, len(table) - 0.4), title="ratio of times")
    axes.title.set(color=GRAY, size=9)
    axes.tick_params(colors=GRAY, labelsize=8)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def _blank(width, height):
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    return figure, axes


def _box(axes, x, y, width, text, color):
    box = FancyBboxPatch(
        (x, y), width, 0.4, boxstyle="round,pad=0,rounding_size=0.08", fill=False, edgecolor=color
    )
    axes.add_patch(box)
    axes.text(x + width / 2, y + 0.2, text, ha="center", va="center", color=color, size=10)


def _arrow(axes, x, y, to_x, to_y):
    arrow = {"arrowstyle": "->", "color": GRAY, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (to_x, to_y), (x, y), arrowprops=arrow)


def _cell(axes, x, y, color):
    axes.add_patch(
        Rectangle(
            (x, y), 0.9, 0.9, facecolor=color or "none", edgecolor=GRAY, linewidth=0.5, alpha=0.8
        )
    )


def _svg(figure):
    """Return a figure as SVG with a transparent background. Its description has all texts."""
    texts = sorted(text.get_text() for text in figure.findobj(matplotlib.text.Text))
    metadata = {"Date": None, "Creator": None, "Description": " ".join(filter(None, texts))}
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "keras_bert"}):
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    return stream.getvalue()


if __name__ == "__main__":
    write()
