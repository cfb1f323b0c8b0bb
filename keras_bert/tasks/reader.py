"""Read labeled data for any task, from a file or from a table in memory."""

import inspect
import os

from keras_bert.data import tables, tabular
from keras_bert.data.examples import with_columns
from keras_bert.tasks.embedding import retrieval
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.tagging import data as conll

# Task -> how `tabular.read` reads labels.
LABEL_KINDS = {
    "classification": "label",
    "pair": "label",
    "multi_label": "label_set",
    "regression": "score",
}
TASKS = (
    *LABEL_KINDS, "embedding", "retrieval", "tagging", "question_answering", "multiple_choice",
)  # fmt: skip
_OF_TEXTS = ("text", "text_pair", "label", "separator", "format", "header", "skip_ragged", "limit")
# Names that a model remembers for `pipeline(model)(frame)` and the command line.
_REMEMBERED = ("text", "text_pair", "label", "separator", "header")
_OPTIONS = {
    "tagging": ("word", "tag", "format", "limit"),
    "question_answering": ("limit", "characters"),
    "multiple_choice": ("format", "limit"),
    "retrieval": ("split",),
}


def read(
    data,
    task="classification",
    *,
    text="text",
    text_pair=None,
    label=...,
    separator=",",
    format=None,
    header=True,
    skip_ragged=False,
    word=1,
    tag=-1,
    characters=None,
    negatives=(),
    score_range=None,
    split="test",
    limit=None,
):
    r"""Read the examples of a task.

    Args:
        data: A file. Texts: TSV, CSV or JSON (lines of objects, or a list). Tagging: CoNLL columns,
            CoNLL-U, JSON Lines or CSV. Question answering: SQuAD's JSON, or rows with `question`,
            `context` and `answers`. Multiple choice: JSON Lines or SWAG's CSV. Or a table in memory
            with the same columns: a pandas DataFrame, a Hugging Face `Dataset`, a dict of columns,
            or a list of rows, which are dicts.
        task: `"classification"`, `"pair"`, `"multi_label"`, `"regression"`, `"embedding"` (pairs,
            scored if `label` names a column; without `text_pair`, texts of the classes in `label`,
            or texts without labels), `"retrieval"` (a folder in the format of BEIR or
            TREC, or a file in SQuAD's format), `"tagging"`, `"question_answering"` or
            `"multiple_choice"`.
        text: Texts: column of the text, a name, or a number from 1 if the file has no header.
        text_pair: Texts: column of the second text.
        label: Texts: column of the label. `None` reads no labels. Default: `"label"`, for
            embeddings `None`. Label sets: also a list of columns of 0 and 1.
        separator: Texts: the string between the labels of a set.
        format: `"tsv"`, `"csv"` or `"jsonl"` for texts, `"conll"` or `"conllu"` for tagging. By
            default from the file's extension.
        header: Texts: whether the first row of a TSV or CSV file names the columns.
        skip_ragged: Texts: skip rows that have another number of columns than the first row.
        word: Tagging: column of the word, a number from 1, or from -1 for the last column; in JSON
            Lines, CSV and tables a name.
        tag: Tagging: column of the tag, as for `word`. `None` reads no tags.
        characters: Question answering: whether to score answers as in KorQuAD. By default, the
            file says it.
        negatives: Embeddings: a column of hard negatives, or a list of columns.
        score_range: Embeddings: the lowest and the highest score, such as `(0, 5)`. The scores are
            then scaled to 0 to 1.
        split: Retrieval: the file in `qrels/` of the folder, without its extension. A folder with
            a single `qrels.txt` has no splits.
        limit: Maximum number of examples.

    Returns:
        `Examples`, `EmbeddingExamples`, `RetrievalData`, `TaggedSentences`, `Questions` or
        `Choices`, for `finetune` and `evaluate`.

    Raises:
        ValueError: If the task is unknown, an argument does not apply to it, or the data is not
            valid. The message names the file and the row.
        OSError: If the file cannot be read.

    Example:

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mail.tsv")
    ...     _ = file.write_text("label\ttext\nspam\tWin now\nham\tSee you at six\n")
    ...     read(file).labels
    ['spam', 'ham']
    >>> read({"review": ["Good."], "stars": [5]}, "regression", text="review", label="stars").scores
    [5.0]
    """
    if label is ...:
        label = None if task == "embedding" else "label"
    given = {
        "text": text, "text_pair": text_pair, "label": label, "separator": separator,
        "format": format, "header": header, "skip_ragged": skip_ragged, "word": word, "tag": tag,
        "characters": characters, "negatives": negatives, "score_range": score_range,
        "split": split, "limit": limit,
    }  # fmt: skip
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; received {task!r:.80}")
    takes = _OPTIONS.get(task, _OF_TEXTS)
    takes = (*takes, "negatives", "score_range") if task == "embedding" else takes
    for name, parameter in inspect.signature(read).parameters.items():
        default = "label" if name == "label" else parameter.default
        if name in given and name not in takes and given[name] != default:
            raise ValueError(f"{name} does not apply to the task {task!r:.80}; remove it")
    options = {name: given[name] for name in takes}
    if task == "pair" and text_pair is None:
        raise ValueError("the task 'pair' needs text_pair, the column of the second text")
    is_file = isinstance(data, (str, os.PathLike))
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        data = tables.of_rows(data)
    if task in LABEL_KINDS or task == "embedding":
        options["kind"] = LABEL_KINDS.get(task, "score" if text_pair else "label")
        columns = options.pop("negatives", ())
        columns = [columns] if isinstance(columns, str) else columns
        score_range = options.pop("score_range", None)
        reader = tabular if is_file else tables
        examples = reader.read(data, **options)
        columns_read = {name: given[name] for name in _REMEMBERED}
        if task != "embedding":
            return with_columns(examples, columns_read)
        if text_pair is None:
            for name, value in (("negatives", columns), ("score_range", score_range)):
                if value:
                    raise ValueError(
                        f"{name} applies only to pairs; give text_pair, the column of the "
                        "second text"
                    )
            if examples.labels is not None:
                return with_columns(EmbeddingExamples.of_classes(examples), columns_read)
            rows = EmbeddingExamples.of_texts(examples.texts, source=examples.source)
            return with_columns(rows, columns_read)
        options |= {"text_pair": None, "label": None}
        try:
            others = [reader.read(data, **options | {"text": name}).texts for name in columns]
        except ValueError as error:
            message = str(error).replace("`text` (--text)", "`negatives` (--negatives)")
            raise ValueError(message) from error
        pairs = EmbeddingExamples.of_pairs(examples, others, score_range=score_range)
        return with_columns(pairs, columns_read)
    if task == "retrieval":
        if not is_file:
            raise ValueError(
                f"the task 'retrieval' reads a folder or a file; received {type(data).__name__}. "
                "For data in memory, use keras_bert.RetrievalData"
            )
        return retrieval.read(data, split)
    reader = {"tagging": conll, "question_answering": squad, "multiple_choice": swag}[task]
    return reader.read(data, **options) if is_file else reader.read_table(data, **options)
