"""Read pairs, scored pairs or classes of texts from a file or a table."""

from keras_bert.data.examples import with_columns
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.text import read_texts


def read_embedding_examples(data, options: dict) -> EmbeddingExamples:
    """Read `EmbeddingExamples`.

    Pairs are scored if `label` names a column. Without `text_pair`, the rows are texts of the
    classes in `label`, or texts without labels.
    """
    options = dict(options)
    negatives = options.pop("negatives")
    columns = [negatives] if isinstance(negatives, str) else list(negatives)
    score_range = options.pop("score_range")
    is_pairs = options["text_pair"] is not None
    examples = read_texts(data, "score" if is_pairs else "label", options)
    if not is_pairs:
        return with_columns(_of_texts(examples, columns, score_range), examples.columns)
    options |= {"text_pair": None, "label": None}
    try:
        others = [read_texts(data, "label", options | {"text": name}).texts for name in columns]
    except ValueError as error:
        message = str(error).replace("`text` (--text)", "`negatives` (--negatives)")
        raise ValueError(message) from error
    pairs = EmbeddingExamples.of_pairs(examples, others, score_range=score_range)
    return with_columns(pairs, examples.columns)


def _of_texts(examples, negatives, score_range):
    """Return the rows of texts with classes, or of texts without labels."""
    for name, value in (("negatives", negatives), ("score_range", score_range)):
        if value:
            raise ValueError(
                f"{name} applies only to pairs; give text_pair, the column of the second text"
            )
    if examples.labels is not None:
        return EmbeddingExamples.of_classes(examples)
    return EmbeddingExamples.of_texts(examples.texts, source=examples.source)
