"""What is left of a run: a table, `metrics.json`, and two pictures."""

import json
import math
import pathlib

import numpy as np

from keras_bert import heads
from keras_bert.runtime.files import atomic_write

METRICS_FILE = "metrics.json"
CURVES_FILE = "curves.png"
CONFUSION_FILE = "confusion_matrix.png"
_MOST_CLASSES = 60  # more of them are no picture any more
# Fonts with Hangul, in the order of preference; matplotlib's own has none.
_FONTS = ("NanumGothic", "Noto Sans CJK KR", "Noto Sans KR", "Malgun Gothic", "AppleGothic")


def table(metrics):
    """The metrics of a run as text, a line each.

    Args:
        metrics: a dict of names and values; what is no number or string is left out.

    Returns:
        A string.

    Example:

    >>> print(table({"accuracy": 0.91234, "majority": 0.5, "history": []}))
    accuracy  0.912
    majority  0.500
    """
    values = {
        name: f"{value:.3f}" if isinstance(value, float) else str(value)
        for name, value in metrics.items()
        if isinstance(value, (int, float, str)) and not isinstance(value, bool)
    }
    width = max(map(len, values), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in values.items())


def write_metrics(folder, metrics):
    """Writes `metrics.json`, whole or not at all.

    Args:
        folder: where to.
        metrics: a dict that JSON can hold.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_metrics(folder, {"accuracy": 1.0})
    ...     json.loads(pathlib.Path(folder, METRICS_FILE).read_text())
    {'accuracy': 1.0}
    """
    file = pathlib.Path(folder, METRICS_FILE)
    text = json.dumps(_finite(metrics), indent=2, ensure_ascii=False)
    with atomic_write(file) as beside:
        beside.write_text(text + "\n", encoding="utf-8")


def _finite(value):
    """The same with `None` for what is no number, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def clear(folder):
    """Deletes what an earlier run has left: not all that it drew will be drawn again.

    Args:
        folder: where it lies.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_metrics(folder, {"accuracy": 1.0})
    ...     clear(folder)
    ...     list(pathlib.Path(folder).iterdir())
    []
    """
    for name in (METRICS_FILE, CURVES_FILE, CONFUSION_FILE):
        pathlib.Path(folder, name).unlink(missing_ok=True)


def draw_curves(folder, history):
    """Draws loss and metrics over the epochs to `curves.png`.

    Args:
        folder: where to.
        history: from `train.finetune`, a dict for each epoch.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_curves(folder, [{"epoch": 1, "loss": 0.7, "accuracy": 0.5}])
    ...     pathlib.Path(folder, CURVES_FILE).stat().st_size > 1000
    True
    """
    figure = _figure(9, 3.5)
    left, right = figure.subplots(1, 2)
    epochs = [record["epoch"] for record in history]
    left.plot(epochs, [record["loss"] for record in history], marker="o")
    left.set(title="training loss", xlabel="epoch")
    names = [name for name in history[0] if name not in ("epoch", "loss", "rmse")]
    for name in names:
        style = {"linestyle": "--"} if name == "majority" else {"marker": "o"}
        right.plot(epochs, [record[name] for record in history], label=name, **style)
    right.set(title="on the dev data", xlabel="epoch")
    if names:
        right.legend()
    for axes in (left, right):
        axes.set_xticks(epochs)
    figure.savefig(pathlib.Path(folder, CURVES_FILE))


def draw_confusion(folder, model, examples, answers):
    """Draws how often each label was answered with each to `confusion_matrix.png`.

    Args:
        folder: where to.
        model: a classifier with one label a text, or a tagger; others have no such picture.
        examples: its data, with labels.
        answers: what it answered.

    Returns:
        Whether there is a picture.
    """
    from sklearn.metrics import confusion_matrix

    output = heads.find_output(model)
    if output.labels is None or output.multi_label or len(output.labels) > _MOST_CLASSES:
        return False
    if output.task == "tagger":
        given = [tag for tags in examples.tags for tag in tags]
        found = [tag for sentence in answers for tag, _ in sentence]
    else:
        given = examples.labels
        found = [output.labels[row.argmax()] for row in answers]
    counts = confusion_matrix(given, found, labels=output.labels)
    size = 2.5 + 0.4 * len(output.labels)
    figure = _figure(size + 1, size)
    axes = figure.subplots()
    # Shares of each row, so that a rare label is as visible as a frequent one.
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=8)
    places = range(len(output.labels))
    names = _drawable(output.labels)
    # A label such as "$" is no formula.
    axes.set_xticks(places, names, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(places, names, parse_math=False)
    axes.set(xlabel="answered", ylabel="right")
    figure.savefig(pathlib.Path(folder, CONFUSION_FILE))
    return True


def _figure(width, height):
    # Not pyplot: it would look for a display and keep each figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _drawable(labels):
    """The labels, or numbers in their place where no font on this machine can draw them."""
    if all(label.isascii() for label in labels):
        return labels
    import matplotlib
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    font = next((font for font in _FONTS if font in installed), None)
    if font is None:
        return [str(index) for index in range(len(labels))]
    matplotlib.rcParams["font.family"] = [font, "DejaVu Sans"]
    return labels
