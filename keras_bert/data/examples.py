"""The data of classification and regression: texts or pairs of texts, with labels or scores."""

import collections
import copy
import dataclasses
import itertools
import math
import numbers
import re
import typing
import unicodedata
from collections.abc import Iterable
from typing import Any

from keras_bert.data.label_columns import clean, is_missing, vectors_of
from keras_bert.runtime.arguments import as_list, is_table
from keras_bert.runtime.escaping import check_name, printable, shown
from keras_bert.runtime.label_types import name_of_type, of_one_type

# The square of a larger score overflows in float32.
_MAX_SCORE = 1e18
_NUMBER = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")


class _Names(tuple):
    """The labels of a text. Other tuples may also be rows of 0 and 1, see `vectors_of`."""


class TaskData:
    """Base class of the data of tasks."""

    def counts(self) -> dict[str, int]:
        """Return what was changed or left out when the data was read, above 0."""
        return {}

    def sample_of_texts(self, count: int) -> list[str]:
        """Return the first texts of the data, at most `count`; by default none."""
        return []

    # Names of the fields with an item per row, which slices cut.
    row_fields: typing.ClassVar[tuple[str, ...]] = ()
    # Names of the columns that `read` was given, by argument, for data that keep them.
    columns: dict | None = None
    label_type = "str"
    characters = False
    source = ""
    prompts: typing.Any = None
    ragged_rows = 0
    # Rows of the file, see `Examples`.
    rows: list | None = None

    __iter__ = None  # `__getitem__` alone would make the data iterable

    @property
    def sources(self) -> tuple[str, ...]:
        """The `source` of each of the data sets that these data consist of."""
        return (self.source,)

    def __getitem__(self, rows: slice) -> typing.Self:
        """Return some of the rows, such as the first 100, `data[:100]`, as data of the same class.

        Raises:
            TypeError: If `rows` is no slice, or the class cannot be sliced.
        """
        data: Any = self  # a dataclass
        return dataclasses.replace(data, **self._parts(rows))

    def _parts(self, rows):
        """Return some of the rows of each of `row_fields` that is not `None`."""
        name = type(self).__name__
        if not self.row_fields:
            raise TypeError(f"{name} cannot be sliced, because it lists no row_fields")
        if not isinstance(rows, slice):
            raise TypeError(f"{name} takes slices, such as data[:100]; received {shown(rows)}")
        values = {name: getattr(self, name) for name in self.row_fields}
        return {name: value[rows] for name, value in values.items() if value is not None}

    def to_dataset(self, model, batch_size=32, *, shuffle=False, seed=0, pad="batch"):
        """Return a `tf.data.Dataset` for Keras' `fit`, `evaluate` and `predict` on every backend.

        The texts are tokenized once, in this call. Long texts of taggers and long contexts of
        questions become several sequences.

        Args:
            model: A model of the data's task. To train an embedder, fit `heads.siamese(model)`; to
                train a span selector, `heads.without_padding(model)`.
            batch_size: Sequences or rows per batch.
            shuffle: If True, each epoch has another order. Each pass over the dataset counts as an
                epoch, also `next(iter(dataset))`.
            seed: Seed of the order.
            pad: `"batch"` pads each batch to its longest sequence, with JAX to one of a few
                lengths. An int pads to that length. Other sequences than windows that are longer
                are truncated, and a warning counts them.

        Returns:
            A dataset of (inputs, targets, weights), or of inputs without labels. The inputs are a
            dict of int32 (batch, seq); of choices and rows of texts (batch, texts, seq). With the
            weights, the mean of Keras' losses is over the words, or over the windows that hold
            their answer, whatever the padding. Multiply them by your own weights. Metrics of words
            weight batches by their length; for exact ones, use `pipeline(model).evaluate(data)`.

        Raises:
            ValueError: If the model has another task or no preprocessor.
            ImportError: If TensorFlow is not installed.
        """
        from keras_bert.tasks import to_dataset as dataset

        return dataset.of_task(self, model, batch_size, shuffle, seed, pad)


@dataclasses.dataclass(frozen=True, repr=False)
class Examples(TaskData):
    """Texts or pairs of texts, optionally labeled. All columns have the same length.

    Attributes:
        texts: The first texts of pairs, or the only texts.
        text_pairs: The second texts, or `None`.
        labels: One label per text, or `None`. Integers, whole floats and booleans keep their type,
            as in the results of a model. Labels of several types become strings, and strings lose
            white space at their ends.
        label_sets: Any number of labels per text, or `None`. Excludes `labels`. Rows of the same
            length with numbers from 0 to 1, lists or an array (n, labels), are targets of the
            labels in `known_labels`, by default "0", "1" and so on; see `probabilities`.
        scores: One number per text, or `None`. Excludes `labels` and `label_sets`.
        source: Where the examples come from, for messages.
        ragged_rows: Number of rows of the file that were skipped because they have the wrong
            number of columns.
        locations: For each text its location in the file, such as "row 2", for messages; or
            `None`.
        rows: For each text, a dict with all columns of its row in the file; or `None`, as after
            `read`.
        columns: The names of the columns that `read` was given, by argument; or `None`.
        known_labels: Labels that a model has even if no label set contains them, or `None`.
        probabilities: For each text the probability of each of `known_labels`, which is its target
            in training; or `None`. `label_sets` has the labels of at least 0.5, also by default.
        label_type: The type of all labels: `"str"`, `"int"`, `"float"` or `"bool"`.

    Raises:
        ValueError: If the columns differ in length, a text is not a string, a score is not a
            number, a label is missing (`None`, NaN or empty) or a number with a fraction, labels
            differ only in their Unicode normalization, or there is more than one kind of labels.

    Example:

    >>> Examples(["Win now", "See you at six"], labels=[1, 0]).label_names()
    [0, 1]
    """

    texts: list[str]
    _: dataclasses.KW_ONLY
    text_pairs: list[str] | None = None
    labels: list | None = None
    label_sets: list[tuple] | None = None
    scores: list[float] | None = None
    source: str = "the examples"
    ragged_rows: int = 0
    locations: list[str] | None = None
    rows: list[dict] | None = None
    columns: dict | None = None
    known_labels: list | None = None
    probabilities: list[tuple[float, ...]] | None = None
    label_type: str = dataclasses.field(init=False, default="str")
    row_fields = (
        "texts", "text_pairs", "labels", "label_sets", "scores", "locations", "rows",
        "probabilities",
    )  # fmt: skip

    def __post_init__(self):
        if self.probabilities is not None:
            object.__setattr__(self, "label_sets", self._sets_of_probabilities())
        kinds = [self.labels, self.label_sets, self.scores]
        if sum(kind is not None for kind in kinds) > 1:
            raise ValueError(f"{self.source}: give only one of labels, label_sets and scores")
        columns = {"texts": self._checked_strings("texts")}
        if self.text_pairs is not None:
            columns["text_pairs"] = self._checked_strings("text_pairs")
        for name in ("labels", "label_sets", "scores"):
            column = getattr(self, name)
            if column is not None:
                columns[name] = self._converted(name, column)
        for name, column in columns.items():
            check_count(self.source, name, column, "texts", len(columns["texts"]))
            object.__setattr__(self, name, column)
        check_normalization(self.source, "labels", map(str, self.label_names()))

    def _checked_strings(self, name):
        """Return a column of texts as a list."""
        column = as_list(f"{self.source}: {name}", getattr(self, name))
        for index, text in enumerate(column):
            if not isinstance(text, str):
                raise ValueError(
                    f"{self.location(index)}: {name} must be strings; received {shown(text)}"
                )
        return column

    def _converted(self, name, column):
        """Return labels, label sets or scores as a checked list; set `label_type`."""
        where = f"{self.source}: {name}"
        column = as_list(where, column)
        if name == "scores":
            return [
                check_score(f"{self.location(row)}: scores", score)
                for row, score in enumerate(column)
            ]
        if name == "labels":
            column = [clean(label) for label in column]
            check_labels(name, column, self.location)
            label_type = name_of_type(column)
            converted = of_one_type(column, label_type)
            _check_no_fractions(where, converted, label_type)
        else:
            sets = self._named_sets(where, column)
            label_type = name_of_type(itertools.chain(*sets))
            converted = [_Names(dict.fromkeys(of_one_type(row, label_type))) for row in sets]
        object.__setattr__(self, "label_type", label_type)
        return converted

    def _named_sets(self, where, column):
        """Return the label sets of a column, also of rows of 0 and 1 or of probabilities."""
        if all(isinstance(labels, _Names) for labels in column):
            return column
        sets = [_label_set(self.location(row), labels) for row, labels in enumerate(column)]
        vectors = vectors_of(where, sets, self.known_labels)
        return sets if vectors is None else self._sets_of_vectors(where, vectors)

    def _sets_of_probabilities(self):
        """Return the label sets of `probabilities`, which is checked."""
        where = f"{self.source}: probabilities"
        column = as_list(where, self.probabilities)
        rows = [_label_set(self.location(row), values) for row, values in enumerate(column)]
        vectors = vectors_of(where, rows, self.known_labels)
        if vectors is None:
            raise ValueError(f"{where} must be rows of numbers from 0 to 1")
        sets = self._sets_of_vectors(where, vectors)
        if self.label_sets is not None:
            stated = [set(map(str, labels)) for labels in self.label_sets]
            if stated != [set(map(str, labels)) for labels in sets]:
                raise ValueError(
                    f"{where} and label_sets differ: a set must have the labels of at least 0.5. "
                    "Give only one of them"
                )
        object.__setattr__(self, "probabilities", vectors)
        return sets

    def _sets_of_vectors(self, where, vectors):
        """Return the labels of at least 0.5 of each row; set `known_labels`, `probabilities`."""
        names = self.known_labels
        if names is None:
            names = [str(index) for index in range(len(vectors[0]))]
        if len(names) != len(vectors[0]):
            raise ValueError(
                f"{where} have {len(vectors[0])} numbers per row for {len(names)} known_labels"
            )
        object.__setattr__(self, "known_labels", list(names))
        if any(0 < number < 1 for row in vectors for number in row):
            object.__setattr__(self, "probabilities", vectors)
        return [
            _Names(name for name, number in zip(names, row, strict=True) if number >= 0.5)
            for row in vectors
        ]

    def __getitem__(self, rows):
        part = copy.copy(self)  # `dataclasses.replace` would check all texts again
        for name, values in self._parts(rows).items():
            object.__setattr__(part, name, values)
        return part

    def sample_of_texts(self, count: int) -> list[str]:
        return list(self.texts[:count])

    def __len__(self):
        return len(self.texts)

    def __repr__(self):
        kinds = {"labels": self.labels, "label_sets": self.label_sets, "scores": self.scores}
        columns = ["text_pairs"] if self.text_pairs is not None else []
        columns += [name for name, column in kinds.items() if column is not None]
        return summary(self, len(self), columns)

    def location(self, index: int) -> str:
        """Return where an example comes from, for messages: "a.tsv, row 2"."""
        where = f"row {index + 1}" if self.locations is None else self.locations[index]
        return f"{self.source}, {where}"

    def text_columns(self) -> list[list[str]]:
        """Return the texts, and of pairs the second texts: a list of one or two lists."""
        return [self.texts] if self.text_pairs is None else [self.texts, self.text_pairs]

    def to_dataset(self, model, batch_size=32, *, shuffle=False, seed=0, pad="batch", labels=None):
        """Return a `tf.data.Dataset` for Keras' `fit`, `evaluate` and `predict` on every backend.

        The texts are tokenized once, in this call.

        Args:
            model: A classifier or regressor of `keras_bert.heads`, whose labels give the targets;
                or a `Preprocessor`.
            batch_size: Texts per batch.
            shuffle: If True, each epoch has another order. Each pass over the dataset counts as an
                epoch, also `next(iter(dataset))`.
            seed: Seed of the order.
            pad: `"batch"` pads each batch to its longest text, with JAX to one of a few lengths.
                An int pads to that length. Texts longer than that, or with `"batch"` than the
                preprocessor's `max_sequence_length`, are truncated, and a warning counts them.
            labels: With a `Preprocessor`, the names of the labels in the order of the targets. By
                default the sorted labels of these examples; give dev data those of the training
                data.

        Returns:
            A dataset of (inputs, targets), or of inputs without labels. The inputs are a dict of
            int32 (batch, seq). Targets are int32 (batch,) for labels, float32 (batch, labels) for
            label sets, and float32 (batch, 1) for scores.

        Raises:
            ValueError: If the model has no preprocessor, reads pairs and the examples are single
                texts, or the reverse, or if it does not know a label.
            ImportError: If TensorFlow is not installed.

        Example:

        >>> from keras_bert import Preprocessor
        >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
        >>> dataset = Examples(["good", "bad"], labels=["yes", "no"]).to_dataset(preprocessor)
        >>> next(iter(dataset))[1].numpy().tolist()
        [1, 0]
        """
        from keras_bert.tasks import to_dataset as dataset

        return dataset.of_examples(self, model, batch_size, shuffle, seed, pad, labels)

    def label_names(self) -> list[Any]:
        """Return the distinct labels, sorted: by value if all are numbers, else as strings."""
        names = set(self.labels or ()).union(*self.label_sets or (), self.known_labels or ())
        try:
            values = {name: float(name) for name in names}
        except ValueError:
            return sorted(names)
        if any(map(math.isnan, values.values())):  # NaN cannot be compared
            return sorted(names)
        return sorted(names, key=lambda name: (values[name], name))

    def majority_share(self) -> float:
        """Return the accuracy of always guessing the most frequent label, 0 to 1."""
        counts = collections.Counter(self.labels or ())
        return max(counts.values()) / counts.total()


def with_columns(data, columns):
    """Return `Examples` or `EmbeddingExamples` with the names of their columns."""
    data = copy.copy(data)  # `dataclasses.replace` would check all texts again
    object.__setattr__(data, "columns", columns)
    return data


class UnknownLabel(ValueError):
    """A label of the data is not one of the model's labels."""


def check_normalization(source, what, names):
    """Raise a `ValueError` if two labels differ only in their Unicode normalization."""
    forms: dict[str, str] = {}
    for name in names:
        other = forms.setdefault(unicodedata.normalize("NFC", name), name)
        if other != name:
            raise ValueError(
                f"{source}: the {what} {ascii(other):.80} and {ascii(name):.80} look the same "
                "and differ in their Unicode normalization. Write both in one form, such as "
                "unicodedata.normalize('NFC', label)"
            )


def unknown_label(location, name, labels, *, what="label", whose="model's "):
    """Return the error for a label that is not one of `labels`."""
    form = unicodedata.normalize("NFC", name)
    advice = ""
    if any(unicodedata.normalize("NFC", label) == form for label in labels):
        advice = f". {ascii(name):.80} differs from a label in its Unicode normalization; use NFC"
    known = printable(", ".join(labels[:20]), 500)
    return UnknownLabel(
        f"{location}: the {what} {shown(name)} is not one of the {whose}labels: {known}{advice}"
    )


def summary(data, count, columns=()):
    """Return a short `repr` of data: its type, its number of items, its columns and its source."""
    also = f" with {', '.join(columns)}" if columns else ""
    unit = "item" if count == 1 else "items"
    return f"<{type(data).__name__}: {count:,} {unit}{also}, from {data.source}>"


def check_labels(name, labels, location):
    """Check a list of labels. `location` returns where a label is, given its index."""
    for index, label in enumerate(labels):
        if isinstance(label, Iterable) and not isinstance(label, str):
            raise ValueError(
                f"{location(index)}: {name} must be strings or numbers; received {shown(label)}. "
                "For any number of labels per text, give label_sets (the task multi_label)"
            )
        if is_missing(label):
            raise ValueError(
                f"{location(index)}: {name} must not be missing; received {shown(label)}"
            )
        scalar = label.item() if hasattr(label, "item") else label
        if not isinstance(scalar, (str, numbers.Real)):
            raise ValueError(
                f"{location(index)}: {name} must be strings or numbers; received {shown(label)}. "
                "Convert it, such as with str(label)"
            )
        if isinstance(label, str):
            check_name(label, f"{location(index)}: a label")


def _check_no_fractions(where, labels, label_type):
    """Raise an error for labels such as 0.83, which are scores and no classes."""
    if label_type != "float":
        return
    for label in labels:
        if not label.is_integer():
            raise ValueError(
                f"{where} must be classes; received the number {label}. For numbers, use the task "
                "regression (scores); for classes, write the labels as words, such as "
                f"'{label} stars'"
            )


def _label_set(name, labels):
    """Return the labels of one text as a list, checked."""
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable) or is_table(labels):
        raise ValueError(f"{name}: label_sets must be lists of labels; received {shown(labels)}")
    # The labels of a set need no order.
    labels = list(labels) if isinstance(labels, (set, frozenset)) else as_list(name, labels)
    labels = [clean(label.item() if hasattr(label, "item") else label) for label in labels]
    check_labels("labels", labels, lambda index: f"{name}, item {index + 1}")
    return labels


def check_strings(source, name, column):
    """Return a column, any iterable of strings, as a list."""
    column = as_list(f"{source}: {name}", column)
    for number, item in enumerate(column, 1):
        if not isinstance(item, str):
            raise ValueError(
                f"{source}: {name} must be strings; received {shown(item)} in row {number}"
            )
    return column


def check_count(source, name, column, other, count):
    """Raise a `ValueError` unless `column` has `count` items, like the column named `other`."""
    if len(column) != count:
        raise ValueError(
            f"{source}: {name} must have the same length as {other}, {count}; "
            f"received {len(column)}"
        )


def check_prompts(data, *prompts):
    """Raise a `ValueError` if data has prompts, or if a prompt is a name or not a string."""
    if data.prompts is not None:
        raise ValueError(
            f"{data.source}: the texts already have prompts. Use the data without prompts"
        )
    for prompt in prompts:
        if not isinstance(prompt, str) or prompt.isidentifier():
            raise ValueError(
                f"with_prompts takes texts such as 'query: '; received {shown(prompt)}. Pass the "
                "text of the prompt, such as pipeline.output.prompts['query']"
            )


def check_score(name, value, row=None):
    """Return a number or numeric string as a finite float, at most 1e18 in absolute value."""
    # Python also reads "1_0" and digits of other scripts as numbers.
    is_text = isinstance(value, str) and not _NUMBER.fullmatch(value)
    is_bool = type(value).__name__ in ("bool", "bool_")
    try:
        number = math.nan if is_text or is_bool else float(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: an int with 400 digits
        number = math.nan
    if not abs(number) <= _MAX_SCORE:
        where = "" if row is None else f" in row {row}"
        advice = ""
        if abs(number) > _MAX_SCORE:
            advice = f". At most {_MAX_SCORE:.0e} is allowed"
        elif is_text and re.fullmatch(r"[-+]?\d+(,\d{3})+(\.\d+)?", value.strip()):
            advice = '. Read the file with pandas.read_csv(path, thousands=",")'
        raise ValueError(f"{name} must be numbers; received {shown(value)}{where}{advice}")
    return number
