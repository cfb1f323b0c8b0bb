"""HTML without scripts, and figures, of attention weights and attributions."""

import base64
import io

import numpy as np

from keras_bert.runtime import figures
from keras_bert.runtime.escaping import html

# Blue and orange differ for readers who do not tell red from green.
_POSITIVE, _NEGATIVE = (66, 135, 245), (245, 140, 40)
_TEXT_STYLE = "white-space:pre-wrap;line-height:1.7"
_MAX_PIXELS = 64  # width of a small heat map, so that a figure of 144 maps stays below 1 MB
# A page loads nothing and runs nothing, whatever the texts in it are.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title, *parts):
    """Return a complete HTML page.

    Args:
        title: Plain text.
        *parts: HTML.

    Returns:
        A string. The page needs no other files and no scripts.

    Example:

    >>> "<h1>a &lt; b</h1>" in page("a < b", "<p>text</p>")
    True
    """
    title = html(title)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{title}</title>\n"
        "<style>body { font-family: sans-serif; max-width: 75rem; margin: 2rem auto; "
        "padding: 0 1rem }</style>\n"
        f"</head>\n<body>\n<h1>{title}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def attributions_html(result):
    """Return the text of `Attributions` as HTML, each word colored by its score."""
    largest = np.abs(result.word_scores).max(initial=0)
    paragraphs = []
    for index, text in enumerate(result.texts):
        parts = []
        position = 0
        for word in result.words:
            if word.get("pair", False) == bool(index):
                parts.append(html(text[position : word["start"]]))
                parts.append(_colored_word(word, largest))
                position = word["end"]
        body = "".join([*parts, html(text[position:])])
        paragraphs.append(f'<p style="{_TEXT_STYLE}">{body}</p>')
    at = "" if result.position is None else f" at {result.tokens[result.position]!r}"
    caption = (
        f"{result.target}{at}: logit {result.logit:.2f}, {result.baseline_logit:.2f} without "
        f"words. Blue words raise it, orange words lower it. Error of the sum: {result.error:.1e}"
    )
    return "".join(paragraphs) + f"<p><small>{html(caption)}</small></p>"


def _colored_word(word, largest):
    share = abs(word["score"]) / largest if largest else 0.0
    end = _POSITIVE if word["score"] > 0 else _NEGATIVE
    color = ",".join(str(round(255 + share * (channel - 255))) for channel in end)
    style = f"background:rgb({color});color:#000"
    shown = html(word["text"])
    return f'<span style="{style}" title="{word["score"]:+.3f}">{shown}</span>'


def attention_html(seen):
    """Return the tokens of `Attention` and a grid of small heat maps as HTML."""
    tokens = " ".join(
        f"<span>{html(token)}<sub>{index}</sub></span>" for index, token in enumerate(seen.tokens)
    )
    file = io.BytesIO()
    plot_heads(seen.weights).savefig(file, format="png")
    data = base64.b64encode(file.getvalue()).decode()
    return (
        f'<p>{tokens}</p><img src="data:image/png;base64,{data}" alt="attention weights">'
        "<p><small>Rows are layers, columns are heads. In a heat map, row i is the token i "
        "that attends, and column j the token j that it attends to. Dark is a high weight; each "
        "heat map has its own scale.</small></p>"
    )


def _shrunk(weights):
    """Return a square array with at most `_MAX_PIXELS` rows: the maximum of each block."""
    size = len(weights)
    if size <= _MAX_PIXELS:
        return weights
    first = np.arange(_MAX_PIXELS) * size // _MAX_PIXELS
    return np.maximum.reduceat(np.maximum.reduceat(weights, first, axis=0), first, axis=1)


def plot_heads(weights):
    """Draw all heads (layers, heads, queries, keys) as a grid of heat maps; return a figure."""
    layers, count = weights.shape[:2]
    size = min(weights.shape[2], _MAX_PIXELS)
    gap = max(1, size // 16)
    grid = np.full((layers * (size + gap) - gap, count * (size + gap) - gap), np.nan)
    for layer, head in np.ndindex(layers, count):
        heat_map = _shrunk(weights[layer, head])
        top = layer * (size + gap)
        left = head * (size + gap)
        grid[top : top + size, left : left + size] = heat_map / max(heat_map.max(), 1e-9)
    figure = figures.new_figure(1 + 0.8 * count, 1 + 0.8 * layers)
    axes = figure.subplots()
    axes.imshow(grid, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    middle = (size - 1) / 2
    axes.set_xticks(np.arange(count) * (size + gap) + middle, range(count))
    axes.set_yticks(np.arange(layers) * (size + gap) + middle, range(layers))
    axes.set(xlabel="head", ylabel="layer")
    return figure


def plot_weights(tokens, weights, title):
    """Draw one heat map (queries, keys) with its tokens; return a figure."""
    size = 1.5 + 0.25 * len(tokens)
    figure = figures.new_figure(size + 1, size)
    axes = figure.subplots()
    drawn = axes.imshow(weights, cmap="Blues", vmin=0)
    figure.colorbar(drawn, ax=axes, label="attention weight")
    options = {"parse_math": False, "fontfamily": figures.font_families()}
    names = [figures.drawable(token) for token in tokens]
    axes.set_xticks(range(len(names)), names, rotation=90, **options)
    axes.set_yticks(range(len(names)), names, **options)
    axes.set(title=title, xlabel="attends to", ylabel="token")
    return figure


def plot_words(result):
    """Draw the scores of the words of `Attributions` as bars; return a figure."""
    figure = figures.new_figure(6, 1.5 + 0.25 * len(result.words))
    axes = figure.subplots()
    scores = result.word_scores
    colors = [np.divide(_POSITIVE if score > 0 else _NEGATIVE, 255) for score in scores]
    axes.barh(range(len(scores)), scores, color=colors or None)
    names = [figures.drawable(word["text"]) for word in result.words]
    families = figures.font_families()
    axes.set_yticks(range(len(names)), names, parse_math=False, fontfamily=families)
    axes.invert_yaxis()
    axes.axvline(0, color="gray", linewidth=0.5)
    axes.set_xlabel(
        f"attribution to {figures.drawable(result.target)}", parse_math=False, fontfamily=families
    )
    return figure
