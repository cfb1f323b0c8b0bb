"""The data of embedding training: pairs and triplets of texts, scored pairs, vectors to imitate."""

import collections
import dataclasses
import warnings

import numpy as np

from keras_bert.data.examples import (
    Examples,
    TaskData,
    check_count,
    check_labels,
    check_prompts,
    check_score,
    summary,
)
from keras_bert.data.label_columns import clean
from keras_bert.runtime.arguments import as_integer, as_list, as_number, check_type
from keras_bert.runtime.arrays import as_numbers
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller

# With the number of texts of a row; `None` for several documents.
_TARGETS = {"scores": 2, "classes": 2, "vectors": 1, "document_scores": None}


@dataclasses.dataclass(frozen=True, repr=False)
class EmbeddingExamples(TaskData):
    """Rows of texts to train or score an embedder on.

    Attributes:
        texts: Rows of the same number of texts, at least two. Without scores, a row is a text, such
            as a question, its positive, such as a paragraph with the answer, and optionally hard
            negatives. With vectors, a row is one text.
        scores: For pairs, how similar they are, one number per row, or `None`.
        source: Where the texts come from, for messages.
        vectors: The embeddings to imitate, floats (rows, width), or `None`.
        classes: For pairs, the class of both texts. Other rows of the class are no negatives.
        document_scores: For each row of a query and documents, the score of each document by a
            teacher, for sparse embedders; or `None`.
        set_sizes, set_sources: Number of rows and source of each data set, see `of_sets`.
        prompts: Text before the first text of each row, and text before the others, or `None`.
        columns: The names of the columns that `read` was given, by argument; or `None`.

    Raises:
        ValueError: If the rows differ in length, a text is not a string, a score not a number or a
            vector not finite.

    Example:

    >>> EmbeddingExamples([("Who wrote it?", "Ada wrote it."), ("Where?", "In Paris.")])
    <EmbeddingExamples: 2 items, from the pairs>
    """

    texts: list[tuple[str, ...]]
    scores: list[float] | None = None
    source: str = "the pairs"
    vectors: np.ndarray | None = None
    classes: list[str] | None = None
    set_sizes: tuple[int, ...] | None = None
    prompts: tuple[str, str] | None = None
    columns: dict | None = None
    document_scores: list[list[float]] | None = None
    set_sources: tuple[str, ...] | None = None
    row_fields = ("texts", "scores", "vectors", "classes", "document_scores")

    def __post_init__(self):
        rows = self._checked_rows()
        object.__setattr__(self, "texts", rows)
        names = [name for name in _TARGETS if getattr(self, name) is not None]
        if len(names) > 1:
            raise ValueError(f"{self.source}: give only one of {', '.join(names)}")
        for name in names:
            column = self._checked_target(name, rows)
            check_count(self.source, name, column, "texts", len(rows))
            object.__setattr__(self, name, column)
        if self.set_sizes is not None:
            sizes = as_list(f"{self.source}: set_sizes", self.set_sizes)
            sizes = tuple(as_integer(f"{self.source}: set_sizes", size, 0) for size in sizes)
            object.__setattr__(self, "set_sizes", sizes)
            if sum(sizes) != len(rows):
                raise ValueError(
                    f"{self.source}: set_sizes must sum to the {len(rows)} rows; received "
                    f"{sizes}. Use EmbeddingExamples.of_sets"
                )

    def _checked_target(self, name, rows):
        """Return the attribute `name`, one of `_TARGETS`, checked."""
        where = f"{self.source}: {name}"
        column = getattr(self, name)
        texts_per_row = len(rows[0]) if rows else _TARGETS[name]
        if _TARGETS[name] not in (None, texts_per_row):
            raise ValueError(f"{where} need rows of {_TARGETS[name]} texts")
        if name == "vectors":
            vectors = as_numbers(where, column).astype(np.float32, copy=False)
            if vectors.ndim != 2 or not np.isfinite(vectors).all():
                raise ValueError(f"{where} must be finite numbers (rows, width)")
            return vectors
        column = as_list(where, column)
        if name == "scores":
            return [check_score(where, score, row) for row, score in enumerate(column, 1)]
        if name == "document_scores":
            return _checked_scores(where, column, rows)
        column = [clean(label) for label in column]
        check_labels("classes", column, lambda row: f"{self.source}, row {row + 1}")
        return column

    def _checked_rows(self):
        """Return the rows of texts, a list of tuples of strings."""
        rows: list = []
        fewest = 2 if self.vectors is None else 1
        for number, row in enumerate(as_list(f"{self.source}: texts", self.texts), 1):
            where = f"{self.source}, row {number}"
            texts = row if isinstance(row, str) else tuple(as_list(where, row))
            is_texts = isinstance(texts, tuple) and all(isinstance(text, str) for text in texts)
            count = len(rows[0]) if rows else len(texts)
            if not is_texts or len(texts) < fewest or len(texts) != count:
                raise ValueError(
                    f"{where}: must be at least {fewest} texts, as many as in the first row; "
                    f"received {shown(texts)}"
                )
            rows.append(texts)
        return rows

    @classmethod
    def of_pairs(cls, examples, negatives=(), *, score_range=None):
        """Return `Examples` of pairs, with or without scores, as `EmbeddingExamples`.

        `negatives` are columns of hard negatives, lists of texts. `score_range` is the lowest and
        the highest score, such as `(0, 5)`; the scores are then scaled to 0 to 1.
        """
        check_type("examples", examples, Examples)
        if examples.text_pairs is None:
            raise ValueError(f"{examples.source} must have pairs of texts; give text_pairs")
        scores = examples.scores
        if score_range is not None:
            scores = _scaled(examples, score_range)
        columns = [as_list("negatives", column) for column in as_list("negatives", negatives)]
        for column in columns:
            check_count(examples.source, "negatives", column, "texts", len(examples))
        return cls(
            [*zip(examples.texts, examples.text_pairs, *columns, strict=True)],
            scores,
            source=examples.source,
        )

    @classmethod
    def of_texts(cls, texts, source="the texts"):
        """Return rows of the same text twice, for training without labels.

        Dropout makes the two embeddings of a text differ. Source: Gao et al. (2021), SimCSE.
        """
        return cls([(text, text) for text in as_list(source, texts)], source=source)

    @classmethod
    def of_classes(cls, examples, seed=0, pairs_per_text=1):
        """Return `Examples` with labels as pairs of texts of the same class.

        Each text is the first one of `pairs_per_text` pairs. The second texts are drawn with the
        seed. A text that is alone in its class has no pair; a warning says how many there are.
        """
        check_type("examples", examples, Examples)
        if examples.labels is None or examples.text_pairs is not None:
            raise ValueError(f"{examples.source} must have single texts with labels")
        members = collections.defaultdict(list)
        for text, label in zip(examples.texts, examples.labels, strict=True):
            members[label].append(text)
        rows: list[tuple[str, ...]] = []
        classes: list[str] = []
        generator = np.random.default_rng(seed)
        unpaired = 0
        for label, texts in members.items():
            if len(texts) == 1:
                unpaired += 1
                continue
            for _ in range(pairs_per_text):
                # Pair each text with a random other text of its class.
                shifts = generator.integers(1, len(texts), len(texts))
                partners = (np.arange(len(texts)) + shifts) % len(texts)
                rows += zip(texts, (texts[partner] for partner in partners), strict=True)
                classes += [str(label)] * len(texts)
        if unpaired:
            warnings.warn(
                f"{examples.source}: {unpaired} of {len(examples)} texts were left out, because no "
                "other text has their class",
                stacklevel=level_of_caller(),
            )
        return cls(rows, source=examples.source, classes=classes)

    @classmethod
    def of_sets(cls, sets):
        """Return several `EmbeddingExamples` as one. A batch holds rows of one set.

        The sets must be of the same kind: all with scores or none, the same prompts, and as many
        texts per row. They cannot have classes, vectors or scores of documents.
        """
        sets = as_list("sets", sets)
        for data in sets:
            check_type("each of sets", data, EmbeddingExamples)
        kinds = {
            (data.scores is None, data.prompts, len(data.texts[0]) if data.texts else 0)
            for data in sets
        }
        others = [(data.vectors, data.classes, data.document_scores) for data in sets]
        has_others = any(columns != (None, None, None) for columns in others)
        if len(kinds) != 1 or has_others:
            raise ValueError(
                "the sets must all have scores or none, the same prompts, and as many texts per "
                "row, and no other columns. Call finetune once for each kind of set"
            )
        rows = [row for data in sets for row in data.texts]
        scores = None
        if sets[0].scores is not None:
            scores = [score for data in sets for score in data.scores]
        sources = tuple(dict.fromkeys(data.source for data in sets))
        return cls(
            rows,
            scores,
            source=", ".join(sources),
            set_sizes=tuple(map(len, sets)),
            set_sources=sources,
            prompts=sets[0].prompts,
        )

    @property
    def sources(self):
        return self.set_sources or super().sources

    def with_prompts(self, query, positive):
        """Return a copy with prompts for training and scoring, in place of the model's default.

        `query` comes before the first text of each row, and `positive` before the others. They are
        texts such as "query: ", not the names of a model's prompts.
        """
        check_prompts(self, query, positive)
        return dataclasses.replace(self, prompts=(query, positive))

    def __getitem__(self, rows):
        if self.set_sizes is not None:
            raise ValueError(
                f"{self.source}: several data sets cannot be sliced. Slice each of them before "
                "EmbeddingExamples.of_sets"
            )
        return super().__getitem__(rows)

    def sample_of_texts(self, count):
        return [text for row in self.texts[:count] for text in row][:count]

    def __len__(self):
        return len(self.texts)

    def __repr__(self):
        names = [name for name in _TARGETS if getattr(self, name) is not None]
        return summary(self, len(self), names)

    def prompted_rows(self, default):
        """Return the rows with prompts; `default` comes before each text of data without its own.

        Example:

        >>> EmbeddingExamples([("a", "b")]).with_prompts("query: ", "text: ").prompted_rows("")
        [('query: a', 'text: b')]
        """
        first, other = self.prompts or (default, default)
        return [(first + row[0], *(other + text for text in row[1:])) for row in self.texts]

    @property
    def positives(self):
        """The second text of each row, or its only one."""
        return [row[min(1, len(row) - 1)] for row in self.texts]


def _checked_scores(where, column, rows):
    """Return the scores of the documents of each row, at least two per row."""
    checked = []
    for number, (scores, row) in enumerate(zip(column, rows, strict=False), 1):
        scores = as_list(f"{where}, row {number}", scores)
        if len(scores) != len(row) - 1 or len(scores) < 2:
            raise ValueError(
                f"{where}, row {number}: must be a score for each of at least two documents; "
                f"received {len(scores)} scores for {len(row) - 1} documents"
            )
        checked.append([check_score(where, score, number) for score in scores])
    return checked


def _scaled(examples, score_range):
    """Return the scores of `Examples`, scaled from a range to 0 to 1."""
    limits = [as_number("score_range", limit) for limit in as_list("score_range", score_range)]
    if len(limits) != 2 or limits[0] >= limits[1]:
        raise ValueError(
            "score_range must be the lowest and the highest score, such as (0, 5); received "
            f"{shown(score_range)}"
        )
    low, high = limits
    if examples.scores is None:
        raise ValueError(
            f"{examples.source}: score_range needs scores; name their column with label (--label)"
        )
    for row, score in enumerate(examples.scores):
        if not low <= score <= high:
            raise ValueError(
                f"{examples.location(row)}: the score {score:g} is not from {low:g} to {high:g}, "
                "the score_range"
            )
    return [(score - low) / (high - low) for score in examples.scores]
