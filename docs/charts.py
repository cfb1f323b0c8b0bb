"""Charts of the documentation, drawn from measured figures.

The figures of the guides are in _static/figures.json, written by benchmarks/guide_figures.py. The
charts of speed read benchmarks/RESULTS.md. `pictures.py` writes the charts as files.
"""

import json
import pathlib
import re

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

DOCS = pathlib.Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "RESULTS.md"
GRAY, BLUE, ORANGE, GREEN, PURPLE = "#8b8b8b", "#4c8bd0", "#d08a3c", "#4fa06a", "#a06fb8"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#c25b5b", "#5aa9a9", GRAY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def measured(name):
    """Return the measured values of a chart."""
    text = (DOCS / "_static" / "figures.json").read_text(encoding="utf-8")
    return json.loads(text)[name]["values"]


def confusion():
    """Draw the confusion matrix of the guide on text classification."""
    found = measured("classification")
    axes = _axes(5.2, 4.6, 0.2, 0.2, 0.78, 0.78)
    _matrix(axes, found["matrix"], found["labels"], found["labels"])
    axes.set(xlabel="predicted", ylabel="label")
    return axes.figure


def curves():
    """Draw the losses and the dev accuracy of six epochs."""
    history = measured("curves")
    epochs = [row["epoch"] for row in history]
    losses, accuracies = _panels(7, 2.6, (0.09, 0.2, 0.38, 0.74), (0.6, 0.2, 0.38, 0.74))
    for name, color, label in (("loss", BLUE, "training"), ("dev_loss", ORANGE, "dev data")):
        losses.plot(epochs, [row[name] for row in history], marker="o", color=color, label=label)
    losses.set(xlabel="epoch", ylabel="loss", xticks=epochs, ylim=(0, None))
    _legend(losses, "center right")
    accuracies.plot(epochs, [row["accuracy"] for row in history], marker="o", color=GREEN)
    accuracies.set(xlabel="epoch", ylabel="dev accuracy", xticks=epochs, ylim=(0, 1))
    return losses.figure


def attributions():
    """Draw what each word of a message adds to the logit of its label."""
    found = measured("classification")["attributions"]
    axes = _axes(6, 3.2, 0.17, 0.14, 0.8, 0.82)
    words = found["words"][::-1]
    scores = [score for _, score in words]
    axes.barh(range(len(words)), scores, color=[GREEN if x > 0 else ORANGE for x in scores])
    axes.set_yticks(range(len(words)), [word for word, _ in words])
    axes.set(xlabel=f"added to the logit of {found['target']}")
    return axes.figure


def multi_label():
    """Draw the probabilities of the labels of a message."""
    found = measured("multi_label")
    axes = _axes(6, 3, 0.15, 0.15, 0.8, 0.72)
    answers = found["answers"][::-1]
    _bars(
        axes,
        [(name, score) for name, score in answers],
        "{:.2f}",
        is_highlighted=lambda x: x >= 0.5,
    )
    axes.set(xlim=(0, 1.1), xlabel="probability", title=f"“{found['text']}”")
    _dashed_line(axes, 0.5)
    return axes.figure


def tagging():
    """Draw the entities that a tagger finds in a sentence."""
    found = measured("tagging")
    figure = Figure(figsize=(7.6, 0.9))
    axes = figure.add_axes((0, 0, 1, 1))
    text = found["text"]
    axes.set(xlim=(-1, len(text) + 1), ylim=(-1.3, 1.4))
    axes.set_axis_off()
    for index, char in enumerate(text):
        axes.text(index + 0.5, 0, char, ha="center", va="center", family="monospace", size=11)
    tags = list(dict.fromkeys(tag for _, _, tag in found["entities"]))
    for start, end, tag in found["entities"]:
        color = COLORS[tags.index(tag)]
        axes.add_patch(Rectangle((start, -0.6), end - start, 1.2, color=color, alpha=0.35, lw=0))
        axes.text((start + end) / 2, -1.1, tag, ha="center", va="center", size=8, color=color)
    return figure


def answer():
    """Draw the probabilities of the start and the end of an answer."""
    found = measured("question_answering")
    axes = _axes(7.4, 3, 0.08, 0.3, 0.9, 0.58)
    best = max(range(len(found["tokens"])), key=found["start"].__getitem__)
    shown = slice(max(0, best - 8), best + 9)
    found = {**found, **{name: found[name][shown] for name in ("tokens", "start", "end")}}
    xs = range(len(found["tokens"]))
    axes.bar([x - 0.2 for x in xs], found["start"], 0.4, color=BLUE, label="start")
    axes.bar([x + 0.2 for x in xs], found["end"], 0.4, color=ORANGE, label="end")
    axes.set_xticks(xs, found["tokens"], rotation=60, ha="right")
    axes.set(ylabel="probability", title=found["question"], ylim=(0, 1))
    _legend(axes)
    return axes.figure


def similarity():
    """Draw the similarities of six sentences."""
    found = measured("embeddings")
    axes = _axes(6.6, 4.2, 0.4, 0.03, 0.58, 0.92)
    _matrix(axes, found["similarity"], found["texts"], None, "{:.2f}")
    return axes.figure


def search():
    """Draw the vectors of the messages on a plane, a query, and its nearest messages."""
    found = measured("embeddings")
    axes = _axes(6.4, 4.2, 0.02, 0.02, 0.74, 0.96)
    labels = dict.fromkeys(sorted(found["labels"]))
    for label, color, marker in zip(labels, COLORS, MARKERS, strict=True):
        points = [
            point
            for point, each in zip(found["points"], found["labels"], strict=True)
            if each == label
        ]
        axes.scatter(*zip(*points, strict=True), s=22, color=color, marker=marker, alpha=0.8, lw=0,
                     label=label)  # fmt: skip
    nearest = [found["points"][index] for index in found["nearest"]]
    axes.scatter(*zip(*nearest, strict=True), s=60, facecolor="none", edgecolor=GRAY, lw=1.4,
                 label="nearest")  # fmt: skip
    axes.scatter(*found["query"], s=140, marker="*", color=GRAY, label="query")
    axes.set(xticks=[], yticks=[])
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes.figure


def few_examples():
    """Draw the accuracy of classifiers of few texts on several data sets, from RESULTS."""
    rows = []
    for name in ("support", "SST-2", "NSMC", "WNUT-17"):
        for size in (8, 16, 64):
            cells = _cells(f"{name}, {size} per label")
            if cells is not None:
                means = [float(cell.strip("*").split()[0]) for cell in cells[1:4]]
                rows.append((cells[0], means))
    axes = _axes(7, 0.8 + 0.6 * len(rows), 0.22, 0.14, 0.76, 0.74)
    places = range(len(rows))
    for column, library in enumerate(("keras_bert", "SetFit", "logistic regression")):
        values = [accuracies[column] for _, accuracies in rows]
        heights = [place + 0.26 * (column - 1) for place in places]
        bars = axes.barh(heights, values, 0.24, color=COLORS[column], label=library)
        axes.bar_label(bars, fmt="%.3f", fontsize=8, padding=2)
    axes.set(
        xlabel="accuracy", xlim=(0, 1), yticks=list(places), yticklabels=[name for name, _ in rows]
    )
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return axes.figure


def imbalanced():
    """Draw precision and recall of a rare label."""
    found = measured("imbalanced")
    axes = _axes(5.4, 3.8, 0.12, 0.14, 0.84, 0.82)
    for (name, label), color in zip(
        (("none", "no weights"), ("balanced", 'class_weight="balanced"')), COLORS, strict=False
    ):
        curve = found[name]
        axes.step(curve["recall"], curve["precision"], color=color, label=label, where="post")
        precision, recall, _ = curve["at_half"]
        axes.plot(recall, precision, marker="o", color=color)
    axes.set(
        xlabel="recall of praise", ylabel="precision of praise", xlim=(0, 1.03), ylim=(0, 1.05)
    )
    _legend(axes, "lower left")
    return axes.figure


def layers():
    """Draw the accuracy of features of each layer."""
    axes = _axes(5.6, 2.8, 0.2, 0.16, 0.74, 0.8)
    names = [
        (name if name.startswith("sum") else f"layer {name}", x) for name, x in measured("layers")
    ]
    _bars(axes, names[::-1], "{:.2f}")
    axes.set(xlabel="accuracy", xlim=(0, 0.9))
    return axes.figure


def long_documents():
    """Draw the accuracy of three ways to read long texts, and the time by length."""
    found = measured("long_documents")
    axes, times = _panels(7.4, 3, (0.08, 0.2, 0.5, 0.7), (0.7, 0.2, 0.28, 0.7))
    ways = list(dict.fromkeys(row[0] for row in found["rows"]))
    for shift, position, color in ((-0.2, "beginning", BLUE), (0.2, "anywhere", ORANGE)):
        scores = [row[2] for row in found["rows"] if row[1] == position]
        xs = [index + shift for index in range(len(ways))]
        axes.bar(xs, scores, 0.38, color=color, label=f"message: {position}")
        for x, score in zip(xs, scores, strict=True):
            axes.text(x, score + 0.02, f"{score:.2f}", ha="center", size=8)
    axes.set_xticks(range(len(ways)), [way.replace(", ", ",\n") for way in ways])
    axes.set(ylim=(0, 1.15), ylabel="accuracy")
    _legend(axes, "upper right")
    times.plot(*zip(*found["milliseconds"], strict=True), marker="o", color=GREEN)
    times.set(xlabel="tokens per text", ylabel="ms per text", ylim=(0, None))
    return axes.figure


def grid():
    """Draw the accuracy by learning rate and batch size."""
    rows = measured("grid")
    rates = list(dict.fromkeys(row[0] for row in rows))
    sizes = list(dict.fromkeys(row[1] for row in rows))
    scores = {(rate, size): score for rate, size, score in rows}
    axes = _axes(4.6, 3, 0.22, 0.18, 0.74, 0.78)
    values = [[scores[rate, size] for size in sizes] for rate in rates]
    _matrix(axes, values, [f"{rate:.0e}" for rate in rates], sizes, "{:.2f}", rotation=0, low=0.74)
    axes.set(xlabel="batch size", ylabel="learning rate")
    return axes.figure


def lora():
    """Draw accuracy and trained weights of three ways to train, and the size in int8."""
    found = measured("lora")
    axes, sizes = _panels(7.4, 2.6, (0.2, 0.2, 0.26, 0.68), (0.72, 0.2, 0.25, 0.68))
    rows = [(f"{name}\n{count:,}", score) for name, count, score, _ in found["training"]]
    _bars(axes, rows[::-1], "{:.2f}")
    axes.set(xlabel="accuracy", xlim=(0, 1), title="training, and trained weights")
    rows = [(f"{name}\naccuracy {score:.2f}", size) for name, size, score, _ in found["int8"]]
    _bars(sizes, rows[::-1], "{:.0f}")
    sizes.set(xlabel="MB", xlim=(0, 125), title="size")
    return axes.figure


def continued():
    """Draw the loss of continued pretraining of a small BERT, and accuracies before and after."""
    small = measured("pretraining")["continued"]
    axes, scores = _panels(7.4, 2.8, (0.08, 0.2, 0.42, 0.74), (0.6, 0.2, 0.39, 0.74))
    for name, color, label in (
        ("loss", BLUE, "training"), ("eval_loss", ORANGE, "held-out sentences"),
    ):  # fmt: skip
        points = [(row["step"], row[name]) for row in small["curve"] if name in row]
        marker = "o" if name == "eval_loss" else ""
        axes.plot(*zip(*points, strict=True), color=color, label=label, marker=marker)
    axes.set(xlabel="step", ylabel="masked LM loss")
    _legend(axes)
    models = {"MiniLM,\n500 rows": measured("continued"), "small BERT,\n6,000 rows": small}
    for index, found in enumerate(models.values()):
        for shift, name, color in ((-0.2, "before", GRAY), (0.2, "after", GREEN)):
            mean, deviation = found["scores"][name]
            label = name if index == 0 else None
            scores.bar(index + shift, mean, 0.38, yerr=deviation, color=color, label=label,
                       ecolor=GRAY, capsize=3)  # fmt: skip
            scores.text(index + shift, mean + 0.02, f"{mean:.3f}", ha="center", size=9)
    scores.set_xticks(range(len(models)), models)
    scores.set(ylim=(0.5, 0.9), ylabel="accuracy on SST-2")
    _legend(scores)
    return axes.figure


def pretraining():
    """Draw the loss and the accuracies of a pretraining run."""
    history = measured("pretraining")["history"]
    axes, scores = _panels(7.2, 2.8, (0.08, 0.2, 0.4, 0.74), (0.58, 0.2, 0.4, 0.74))
    axes.plot(*zip(*((row["step"], row["loss"]) for row in history), strict=True), color=BLUE)
    axes.set(xlabel="step", ylabel="training loss")
    for name, color, label in (
        ("masked_lm", GREEN, "masked tokens"), ("next_sentence", ORANGE, "next sentence"),
    ):  # fmt: skip
        key = f"eval_{name}_accuracy"
        points = [(row["step"], row[key]) for row in history if key in row]
        scores.plot(*zip(*points, strict=True), marker=".", color=color, label=label)
    scores.set(xlabel="step", ylabel="accuracy, held-out documents", ylim=(0, 1))
    _legend(scores, "center right")
    return axes.figure


def memory():
    """Draw memory and time of the measures relative to the default, from RESULTS."""
    memory_row = _results_row("memory of a training step with rematerialization")
    tensorflow, jax = re.findall(r"([\d.]+) (?:TensorFlow|JAX)", memory_row)
    speeds = [
        re.match(r"\**([\d.]+)x", _results_row(name))[1]
        for name in ("pretraining step of BERT-Base, 8 x 128, mixed_bfloat16",
                     "fine-tuning in mixed_bfloat16, SST-2")
    ]  # fmt: skip
    rows = [
        ("memory with rematerialization,\nTensorFlow", float(tensorflow)),
        ("memory with rematerialization,\nJAX", float(jax)),
        ("time in bfloat16,\npretraining step of BERT-Base", 1 / float(speeds[0])),
        ("time in bfloat16,\nfine-tuning MiniLM", 1 / float(speeds[1])),
    ]
    axes = _axes(6.6, 2.8, 0.37, 0.16, 0.58, 0.8)
    _bars(axes, rows[::-1], "{:.2f}")
    axes.set(xlabel="ratio to the default (dashed)", xlim=(0, 1.1))
    _dashed_line(axes, 1)
    return axes.figure


def export_speed():
    """Draw the times of exported models, relative to those of other engines, from RESULTS."""
    many = "exported model, 32 texts, ratio of times"
    one, five = (f"exported model, one text of {count} words, ratio" for count in (20, 5))
    torch = "ONNX export in ONNX Runtime"
    rows = [
        ("32 texts: float32 vs ONNX Runtime float32", f"{many}, float32", 0),
        ("32 texts: float32 vs OpenVINO float32", f"{many}, float32", 1),
        ("32 texts: bfloat16 vs ONNX Runtime int8", f"{many}, bfloat16", 0),
        ("32 texts: bfloat16 vs OpenVINO bfloat16", f"{many}, bfloat16", 1),
        ("short and long texts: float32 vs ONNX Runtime", "exported model, 64 sentences", 0),
        ("20 words: float32 vs ONNX Runtime float32", one, 0),
        ("20 words: bfloat16 vs ONNX Runtime float32", one, 1),
        ("5 words: float32 vs ONNX Runtime float32", five, 0),
        ("5 words: bfloat16 vs ONNX Runtime float32", five, 1),
        ("5 words: float32 vs OpenVINO float32", five, 2),
        ("20 words: ONNX export vs torch's export", torch, 0),
        ("32 texts: ONNX export vs torch's export", torch, 2),
    ]
    rows = [(name, _decimals(start)[index]) for name, start, index in rows]
    axes = _axes(7, 4, 0.46, 0.13, 0.5, 0.85)
    _bars(axes, rows[::-1], "{:.2f}", is_highlighted=lambda ratio: ratio < 1, other_color=ORANGE)
    axes.set(xlabel="time of keras_bert / time of the other engine", xlim=(0, 3.1))
    _dashed_line(axes, 1)
    return axes.figure


def engine_speed():
    """Draw the speed of each engine for embeddings with its agreement with float32."""
    engines = ["TensorFlow (peer: torch)", "ONNX Runtime", "OpenVINO"]
    precisions = ["float32", "bfloat16", "int8"]
    rows = [_cells(f"{engine}, {precision}") for engine in engines for precision in precisions]
    rows = [row for row in rows if row is not None][::-1]
    axes = _axes(7, 4.4, 0.3, 0.12, 0.66, 0.86)
    for index, row in enumerate(rows):
        libraries = (("keras_bert", GREEN, 1, 0.2), ("sentence-transformers", GRAY, 2, -0.2))
        for name, color, column, shift in libraries:
            if not row[column]:  # not measured
                continue
            speed = float(row[column].replace(",", ""))
            label = name if index == len(rows) - 1 else None
            axes.barh(index + shift, speed, 0.36, color=color, label=label)
            axes.text(speed + 40, index + shift, row[column + 4], va="center", size=9)
    axes.set_yticks(
        range(len(rows)), [row[0].replace(" (peer: torch)", " or torch") for row in rows]
    )
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="sentences per second, with the mean cosine to float32", xlim=(0, 4400))
    _legend(axes)
    return axes.figure


def library_speed():
    """Draw the speed relative to other libraries, from RESULTS."""
    rows = [
        ("fine-tuning, transformers", "fine-tuning on SST-2, 6,000 rows", 0),
        ("fine-tuning in bfloat16, transformers", "fine-tuning on SST-2, 6,000 rows", 1),
        ("fine-tuning, KerasHub", "fine-tuning, speed on three tasks", 0),
        ("predicting 10,000 texts, transformers", "prediction of 10,000 texts", 0),
        ("embedding sentences, both in OpenVINO,\nbfloat16, sentence-transformers",
         "embedding 2,000 sentences", 1),
        ("embedding paragraphs, both in OpenVINO,\nbfloat16, sentence-transformers",
         "embedding 2,000 sentences", 3),
        (
            "training embeddings, SQuAD, H200, slower of\ntwo runs, sentence-transformers",
            "the same on the H200",
            1,
        ),
        ("exported model, one text, KerasHub", "exported model, one text of 20 words, one of 5", 0),
        ("exported model, 32 texts, KerasHub", "exported model, one text of 20 words, one of 5", 2),
        ("pretraining step of BERT-Base, KerasHub", "pretraining step of BERT-Base, speed", 0),
        ("records with tensorflow-text,\ntokenizers", "tokenizer of records", 0),
    ]  # fmt: skip
    rows = [(name, _decimals(start)[index]) for name, start, index in rows]
    axes = _axes(7, 4.8, 0.45, 0.12, 0.51, 0.86)
    _bars(axes, rows[::-1], "{:.2f}x", is_highlighted=lambda ratio: ratio >= 1, other_color=ORANGE)
    axes.set(xlabel="speed of keras_bert / speed of the peer", xlim=(0, 6.6))
    _dashed_line(axes, 1)
    return axes.figure


def _decimals(start):
    """Return the decimal numbers in a row of RESULTS.md."""
    return [float(each) for each in re.findall(r"\d+\.\d+", _results_row(start))]


def _results_row(start):
    """Return the result of the row of RESULTS.md whose measurement starts with a text."""
    return _cells(start)[3]


def _cells(start):
    """Return the cells of the row of RESULTS.md whose first cell starts with a text, or `None`."""
    rows = (
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in RESULTS.read_text(encoding="utf-8").splitlines()
    )
    found = [row for row in rows if row[0].startswith(start)]
    if len(found) > 1:
        raise ValueError(f"{len(found)} rows of RESULTS.md start with {start!r}")
    return found[0] if found else None


def _axes(width, height, *place):
    """Return the axes of a new figure of a size in inches."""
    return _panels(width, height, place)[0]


def _panels(width, height, *places):
    """Return several axes of a new figure; a place is (left, bottom, width, height), 0 to 1."""
    figure = Figure(figsize=(width, height))
    panels = [figure.add_axes(place) for place in places]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    return panels


def _legend(axes, loc="upper right"):
    axes.legend(frameon=False, fontsize=9, loc=loc)


def _bars(axes, rows, value_format, is_highlighted=lambda value: True, other_color=GRAY):
    """Draw horizontal bars of (name, value), the first at the bottom."""
    for index, (_, value) in enumerate(rows):
        axes.barh(index, value, 0.6, color=GREEN if is_highlighted(value) else other_color)
        offset = 0.01 * max(x for _, x in rows)
        axes.text(value + offset, index, value_format.format(value), va="center", size=9)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.tick_params(axis="y", length=0)


def _dashed_line(axes, x):
    """Draw a vertical line behind the bars, with gaps where it would cross a number."""
    axes.set_ylim(axes.get_ylim())
    inches = axes.figure.get_size_inches()[0] * axes.get_position().width
    low, high = axes.get_xlim()
    character = 0.085 * (high - low) / inches  # width of a digit
    start = axes.get_ylim()[0]
    for text in sorted(axes.texts, key=lambda text: text.get_position()[1]):
        left, y = text.get_position()
        if left - character < x < left + character * (len(text.get_text()) + 1):
            axes.plot((x, x), (start, y - 0.35), color=GRAY, linestyle="--", linewidth=1, zorder=0)
            start = y + 0.35
    end = axes.get_ylim()[1]
    axes.plot((x, x), (start, end), color=GRAY, linestyle="--", linewidth=1, zorder=0)


def _matrix(axes, values, rows, columns, value_format="{}", rotation=45, low=0):
    """Draw a matrix of numbers as shaded cells."""
    high = max(map(max, values))
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            share = max(0, (value - low) / (high - low))
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=BLUE, alpha=0.75 * share, lw=0))
            if value:
                axes.text(
                    x + 0.5, y + 0.5, value_format.format(value), ha="center", va="center", size=9
                )
    axes.set(xlim=(0, len(values[0])), ylim=(len(values), 0))
    axes.set_yticks([y + 0.5 for y in range(len(values))], rows)
    ticks = [] if columns is None else [x + 0.5 for x in range(len(columns))]
    axes.set_xticks(ticks, columns or [], rotation=rotation, ha="right" if rotation else "center")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
