"""The data of embedding training: pairs and triplets of texts, optionally scored."""

import dataclasses

from keras_bert.data.examples import check_count, check_list, check_score, check_strings, summary


@dataclasses.dataclass(frozen=True, repr=False)
class EmbeddingExamples:
    """Rows of texts to train or score an embedder on.

    Attributes:
        texts: Rows of the same number of texts, at least two. Without scores, a row is a text, such
            as a question, its positive, such as a paragraph with the answer, and optionally hard
            negatives.
        scores: For pairs, how similar they are, one number per row, or `None`.
        source: Where the texts come from, for messages.

    Raises:
        ValueError: If the rows differ in length, a text is not a string or a score not a number.

    Example:

    >>> EmbeddingExamples([("Who wrote it?", "Ada wrote it."), ("Where?", "In Paris.")])
    <EmbeddingExamples: 2 items, from the pairs>
    """

    texts: list[tuple[str, ...]]
    scores: list[float] | None = None
    source: str = "the pairs"

    def __post_init__(self):
        check_list(f"{self.source}: texts", self.texts)
        rows = []
        for number, row in enumerate(self.texts, 1):
            where = f"{self.source}, row {number}"
            rows.append(tuple(check_strings(where, "texts", row)))
            if len(rows[-1]) != len(rows[0]) or len(rows[-1]) < 2:
                raise ValueError(
                    f"{where}: must have at least two texts, as many as the first row; received "
                    f"{len(rows[-1])}"
                )
        object.__setattr__(self, "texts", rows)
        if self.scores is not None:
            check_list(f"{self.source}: scores", self.scores)
            if rows and len(rows[0]) != 2:
                raise ValueError(f"{self.source}: scores need rows of two texts")
            scores = [
                check_score(f"{self.source}: scores", score, number)
                for number, score in enumerate(self.scores, 1)
            ]
            check_count(self.source, "scores", scores, "texts", len(rows))
            object.__setattr__(self, "scores", scores)

    @classmethod
    def of_pairs(cls, examples, negatives=()):
        """Return `Examples` of pairs, with or without scores, as `EmbeddingExamples`.

        `negatives` are columns of hard negatives, lists of texts.
        """
        return cls(
            [*zip(examples.texts, examples.text_pairs, *negatives, strict=True)],
            examples.scores,
            source=examples.source,
        )

    def __len__(self):
        return len(self.texts)

    def __repr__(self):
        return summary(self, len(self), [] if self.scores is None else ["scores"])

    @property
    def positives(self):
        """The second text of each row."""
        return [row[1] for row in self.texts]
