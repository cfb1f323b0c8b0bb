"""The report of a training run: `metrics.json` and two plots."""

import itertools
import pathlib
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import heads
from keras_bert.provenance import METRICS_FILE
from keras_bert.runtime.figures import drawable, font_families, new_figure
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import registry
from keras_bert.tasks.keras_predictor import KerasPredictor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES_FILE = "curves.png"
CONFUSION_FILE = "confusion_matrix.png"
_MAX_CLASSES = 60  # a plot of more classes is not readable
# Values of a history that are not plotted.
_NOT_PLOTTED = {
    "epoch", "step", "sequence_length", "learning_rate",
    "seconds", "tokens_per_second", "sequences_per_second", "flop_utilization",
}  # fmt: skip
_LABELS = {"loss": "training loss", "dev_loss": "dev loss", "eval_loss": "held-out loss"}


def clear(folder):
    """Delete the report of an earlier run; the next run may not write all of these files."""
    for name in (METRICS_FILE, CURVES_FILE, CONFUSION_FILE):
        pathlib.Path(folder, name).unlink(missing_ok=True)


def draw_curves(folder, history, x="epoch"):
    """Write `plot_curves` to `curves.png`."""
    _write(plot_curves(history, x), pathlib.Path(folder, CURVES_FILE))


def plot_curves(metrics: dict | list[dict], x: str = "epoch") -> "Figure":
    """Plot the losses and scores of a run.

    A vertical line marks each change of the sequence length in pretraining.

    Args:
        metrics: The metrics that `keras_bert.finetune` returns, or their `history`.
        x: `"epoch"`, or `"step"` for a run of pretraining.

    Returns:
        A `matplotlib.figure.Figure`, which notebooks show. `savefig` writes it to a file.

    Raises:
        ValueError: If there is nothing to plot.

    Example:

    >>> figure = plot_curves([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
    >>> [axes.get_title() for axes in figure.axes]
    ['Loss', 'Scores']
    """
    history = metrics["history"] if isinstance(metrics, dict) else metrics
    if not history:
        raise ValueError("there is nothing to plot: the history has no epoch")
    figure = new_figure(9, 4.5)
    left, right = figure.subplots(1, 2)
    names = dict.fromkeys(name for record in history for name in record if _is_plotted(name))
    losses = [name for name in names if name.endswith("loss")]
    _plot(left, history, x, losses)
    left.set(title="Loss", xlabel=x, ylabel="mean loss per target")
    _plot(right, history, x, [name for name in names if name not in losses])
    right.set(title="Scores", xlabel=x, ylabel="score (1 is perfect)")
    return figure


def _is_plotted(name):
    """Return True for losses and scores; errors are not on the scale of scores."""
    is_setting = name in _NOT_PLOTTED or name.endswith("_threshold")
    return not is_setting and not registry.lower_is_better(name)


def _plot(axes, history, x, names):
    colors: dict[str, str] = {}
    for name in names:
        records = [record for record in history if name in record]
        positions = [record[x] for record in records]
        values = [record[name] for record in records]
        # Training and held-out values of one metric have the same color.
        measure = name.removeprefix("eval_").removeprefix("dev_")
        color = colors.setdefault(measure, f"C{len(colors)}")
        is_dense = f"eval_{name}" in names  # recorded more often than held-out values
        style = {"alpha": 0.5} if is_dense else {"marker": "o"}
        if f"dev_{name}" in names:
            # An empty marker, because a full one would hide the line in the legend.
            style = {"marker": "o", "markerfacecolor": "white", "linestyle": ":"}
        if registry.is_baseline(name):
            style = {"linestyle": "--"}
        axes.plot(positions, values, label=_LABELS.get(name, name), color=color, **style)
    for before, record in itertools.pairwise(history):
        if record.get("sequence_length") != before.get("sequence_length"):
            axes.axvline(before[x], color="gray", linewidth=0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if names:
        position = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2}
        # Long enough to show the dots of a line beside its marker.
        axes.legend(**position, fontsize="small", handlelength=4)


def draw_confusion(folder, model, examples, batch_size):
    """Write the confusion matrix to `confusion_matrix.png`, and return True if there is one."""
    if not _has_confusion(heads.find_output(model)):
        return False
    figure = plot_confusion(model, examples, batch_size=batch_size)
    _write(figure, pathlib.Path(folder, CONFUSION_FILE), bbox_inches="tight", pad_inches=0.2)
    return True


def plot_confusion(model: keras.Model, examples: Any, *, batch_size: int = 32) -> "Figure":
    """Plot the confusion matrix: a row per true label, a column per predicted one.

    If no installed font has the characters of the labels, the plot has numbers in their place, and
    their meaning is printed.

    Args:
        model: A classifier with one label per text, or a tagger, with at most 60 labels.
        examples: Data of its task, with labels.
        batch_size: Sequences per batch.

    Returns:
        A `matplotlib.figure.Figure`, which notebooks show. `savefig` writes it to a file.

    Raises:
        ValueError: If the model is not a classifier or tagger, or has more labels.

    Example:

    >>> from keras_bert import BertEncoder, Examples, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model = heads.classifier(encoder, labels=["no", "yes"])
    >>> figure = plot_confusion(model, Examples(["good", "bad"], labels=["yes", "no"]))
    >>> figure.axes[0].get_title()
    'Confusion matrix'
    """
    output = heads.find_output(model)
    if not _has_confusion(output):
        raise ValueError(
            "a confusion matrix needs a classifier with one label per text, or a tagger, with at "
            f"most {_MAX_CLASSES} labels; received {model.name!r}"
        )
    predictor = KerasPredictor(model)
    predictor.check_labeled(examples)
    answers = predictor.answers(examples, batch_size=batch_size)
    expected, predicted = predictor.task.confusion(output, examples, answers)
    return _plot_confusion(output.labels, expected, predicted)


def _has_confusion(output):
    if output is None or output.labels is None or output.multi_label:
        return False
    return len(output.labels) <= _MAX_CLASSES


def _plot_confusion(labels, expected, predicted):
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(expected, predicted, labels=labels)
    size = 2.5 + 0.4 * len(labels)
    figure = new_figure(size + 1, size)
    axes = figure.subplots()
    # Shares of each row, so that a rare label is as visible as a frequent one.
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=8)
    ticks = range(len(labels))
    names = labels
    note = ""
    if any(drawable(label) != label for label in labels):
        names = [str(index) for index in ticks]
        note = " (index of the label)"
        key = ", ".join(f"{index}: {label}" for index, label in enumerate(labels))
        print_line(f"no font has the characters of all labels. In the confusion matrix, {key}")
    # Do not parse a label such as "$" as a formula.
    style = {"parse_math": False, "fontfamily": font_families()}
    axes.set_xticks(ticks, names, rotation=45, ha="right", **style)
    axes.set_yticks(ticks, names, **style)
    axes.set(title="Confusion matrix", xlabel=f"predicted{note}", ylabel=f"true{note}")
    return figure


def _write(figure, path, **options):
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", **options)
