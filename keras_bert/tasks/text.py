"""Tasks that give each text, or each pair of texts, one answer: their base classes and checks."""

import dataclasses
import os
import typing
import warnings

import numpy as np

from keras_bert.data import tables, tabular
from keras_bert.data.examples import Examples, unknown_label, with_columns
from keras_bert.runtime.arguments import LONG_TEXTS, check_one_of
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.inputs import SOURCE
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.task import Options, Task
from keras_bert.text.encoded_texts import EncodedTexts

# Options of `keras_bert.read` for texts.
READ_OPTIONS = (
    "text", "text_pair", "label", "separator", "format", "header", "skip_ragged", "limit",
)  # fmt: skip
# Names that a model remembers for `pipeline(model)(frame)` and the command line.
_REMEMBERED = ("text", "text_pair", "label", "separator", "header")


def read_texts(data, kind: str, options: dict) -> Examples:
    """Read texts or pairs of texts; `kind` is that of `tabular.read`."""
    is_file = isinstance(data, (str, os.PathLike))
    if not is_file:
        tables.check_no_format(options["format"])
    reader = tabular if is_file else tables
    examples = reader.read(data, kind=kind, **options)
    return with_columns(examples, {name: options[name] for name in _REMEMBERED})


def read_values(data, options: dict) -> list:
    """Return the values of the column `text` of a file or a table, which may be lists."""
    if isinstance(data, (str, os.PathLike)):
        return tabular.read_values(data, **options)
    name = options["text"]
    return tables.read_columns(data, [name], (), options["limit"], "EmbeddingExamples")[name]


class TextPipeline(Pipeline):
    """Pipeline of a task that reads texts or pairs of texts."""

    def _check_data(self, examples):
        super()._check_data(examples)
        if isinstance(examples, Examples):
            check_pairs(len(self.columns) == 2, examples)

    def _rows(self, inputs, text_pair=None, **others):
        is_tuple = isinstance(inputs, tuple) and len(inputs) == 2
        if len(self.columns) == 1:
            reads = f"{self.predictor.name!r} reads single texts"
            advice = f"For pairs, use keras_bert.load(name, task={self.task!r}, pairs=True)"
            if text_pair is not None:
                raise ValueError(f"{reads}; remove text_pair. {advice}")
            if is_tuple and all(isinstance(text, str) for text in inputs):
                note = f"{reads}, so the tuple is two texts with an answer each. {advice}"
                warnings.warn(note, stacklevel=level_of_caller())
        elif is_tuple and text_pair is None and not isinstance(inputs[0], str):
            # The tuple may be the columns of two pairs, or two pairs.
            raise ValueError("give two lists of texts, inputs and text_pair, or a list of pairs")
        return super()._rows(inputs, text_pair=text_pair, **others)

    def _examples(self, rows):
        if len(self.columns) == 1:
            return Examples(rows, source=SOURCE)
        texts, text_pairs = map(list, zip(*rows, strict=True))
        return Examples(texts, text_pairs=text_pairs, source=SOURCE)


@dataclasses.dataclass(frozen=True)
class TextOptions(Options):
    """Options of training.

    long_texts: `"truncate"`, `"window"` or `"error"`; `None` takes that of the model.
    """

    long_texts: str | None = None


class TextTask(Task):
    """A task that gives each text, or each pair of texts, one answer."""

    answers_texts = True
    pipeline: type[Pipeline] = TextPipeline
    training_options: type[Options] = TextOptions
    label_kinds: typing.ClassVar[dict[str, str]] = {}  # for names of `reads`, else "label"

    def _label_kind(self, name, options):
        """Return the `kind` of `tabular.read`; raise an error for pairs without a second text."""
        if name == "pair" and options["text_pair"] is None:
            raise ValueError(
                "the task 'pair' needs text_pair (--text-pair), the column of the second text"
            )
        return self.label_kinds.get(name, "label")

    def read(self, name, data, options):
        return read_texts(data, self._label_kind(name, options), options)

    def read_in_parts(self, name, path, options):
        kind = self._label_kind(name, options)
        # Each row gets an answer, so a row with another number of columns is an error.
        options = options | {"label": None, "skip_ragged": False}
        return tabular.read_in_parts(path, kind=kind, keep_rows=True, **options)

    def of_texts(self, model, texts, source):
        if not model.output.pairs:
            return Examples(texts, source=source)
        if len(texts) != 2:
            raise ValueError(f"give the two texts of a pair, or --input; received {len(texts)}")
        return Examples(texts[:1], text_pairs=texts[1:], source=source)

    def inputs_of(self, output):
        return ("text", "text_pair") if output.pairs else ("text",)

    def columns_of(self, examples, output):
        check_pairs(output.pairs, examples)
        return examples.text_columns()

    def is_labeled(self, examples):
        columns = (examples.labels, examples.label_sets, examples.scores)
        return columns != (None, None, None)

    def rows(self, output, examples, answers, probabilities=False):
        """Yield the result of each text, and the text."""
        for index, result in enumerate(self.results(output, examples, answers)):
            yield result | texts_of(examples, index)

    def targets(self, output, examples):
        """Return the targets of training, an array; `None` without labels."""
        return targets_of(examples, output)

    def check_targets(self, output, examples):
        self.targets(output, examples)

    def weights(self, output, examples, targets, options):
        """Return the weight of each text in the loss, float32 (n,), or `None`."""
        return None

    def encode(self, model, examples, max_length, options):
        """Return texts or pairs as `EncodedTexts`."""
        check_pairs(model.output.pairs, examples)
        long_texts = options.long_texts or model.output.long_texts
        check_one_of("long_texts", long_texts, LONG_TEXTS)
        if long_texts == "window" and model.output.pairs:
            raise ValueError('long_texts="window" is only for single texts; use "truncate"')
        targets = self.targets(model.output, examples)
        encoded = EncodedTexts(
            model.tokenizer,
            examples.text_columns(),
            max_length,
            targets=targets,
            weights=self.weights(model.output, examples, targets, options),
            in_windows=long_texts == "window",
        )
        if long_texts == "error" and encoded.truncated:
            raise ValueError(
                f"{examples.source}: {encoded.truncated} of {len(examples)} texts have more than "
                f'{max_length} tokens; shorten them, or use long_texts="truncate" or "window"'
            )
        return encoded

    def encode_training(self, model, examples, max_length, options):
        """Return what `encode` returns; raise an error for data without targets."""
        if self.targets(model.output, examples) is None:
            raise ValueError(
                f"{examples.source}: the task {self.name} has no targets for these data; its "
                "method targets returned None"
            )
        return super().encode_training(model, examples, max_length, options)


def check_pairs(pairs: bool, examples: Examples):
    """Raise an error if a model reads pairs and the examples are single texts, or the reverse."""
    if pairs == (examples.text_pairs is not None):
        return
    reads, has = ("pairs of texts", "single texts") if pairs else ("single texts", "pairs of texts")
    raise ValueError(f"the model reads {reads}; {examples.source} has {has}")


def texts_of(examples, index):
    """Return the text or the pair of texts of an example."""
    names = ("text", "text_pair")
    return {
        name: column[index] for name, column in zip(names, examples.text_columns(), strict=False)
    }


def targets_of(examples, output=None, labels=None):
    """Return the targets of examples: (n,), (n, 1) or (n, labels); `None` without labels.

    `output` is the `TaskOutput` of a model; without one, the labels are `labels`, by default those
    of the examples.
    """
    columns = {
        "labels": examples.labels,
        "scores": examples.scores,
        "label sets": examples.label_sets,
    }
    kind = next((kind for kind, column in columns.items() if column is not None), None)
    if kind is None:
        return None
    if output is not None:
        labels = output.labels
        wanted = "label sets" if output.multi_label else "labels"
        wanted = "scores" if labels is None else wanted
        if kind != wanted:
            raise ValueError(f"the model takes {wanted}; received {kind} in {examples.source}")
    if kind == "scores":
        return np.array(examples.scores, np.float32)[:, None]
    if labels is None:
        labels = [str(label) for label in examples.label_names()]
    index_of_label = {label: index for index, label in enumerate(labels)}

    def index_of(label, row):
        if str(label) not in index_of_label:
            whose = "" if output is None else "model's "
            raise unknown_label(examples.location(row), str(label), labels, whose=whose)
        return index_of_label[str(label)]

    if kind == "labels":
        indices = [index_of(label, row) for row, label in enumerate(examples.labels)]
        return np.array(indices, np.int32)
    targets = np.zeros((len(examples), len(labels)), np.float32)
    for row, label_set in enumerate(examples.label_sets):
        for label in label_set:
            targets[row, index_of(label, row)] = 1
    if examples.probabilities is not None:
        label_indices = [index_of(label, 0) for label in examples.known_labels]
        targets[:, label_indices] = examples.probabilities
    return targets
