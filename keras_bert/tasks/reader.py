"""Read labeled data for any task, from a file or from a table in memory."""

import inspect
import os
from collections.abc import Sequence
from typing import Any

from keras_bert.data import tables
from keras_bert.runtime.arguments import as_path
from keras_bert.runtime.escaping import shown
from keras_bert.tasks import registry


def read(
    data: Any,
    task: str = "classification",
    *,
    text: str = "text",
    text_pair: str | None = None,
    label: Any = ...,
    separator: str = ",",
    format: str | None = None,
    header: bool = True,
    skip_ragged: bool = False,
    word: int | str = 1,
    tag: int | str = -1,
    characters: bool | None = None,
    negatives: str | Sequence[str] = (),
    score_range: tuple[float, float] | None = None,
    split: str = "test",
    limit: int | None = None,
) -> Any:
    r"""Read the examples of a task.

    Args:
        data: A file. Texts: TSV, CSV or JSON (lines of objects, or a list). Tagging: CoNLL columns,
            CoNLL-U, JSON Lines or CSV. Question answering: SQuAD's JSON, or rows with `question`,
            `context` and `answers`. Multiple choice: JSON Lines or SWAG's CSV. Or a table in memory
            with the same columns: a pandas DataFrame, a Hugging Face `Dataset`, a dict of columns,
            or a list of rows, which are dicts.
        task: `"classification"`, `"pair"`, `"multi_label"`, `"regression"`, `"embedding"` (pairs,
            scored if `label` names a column; without `text_pair`, texts of the classes in `label`,
            or texts without labels), `"reranking"` (queries with documents, as pairs of
            embeddings), `"retrieval"` (a folder in the format of BEIR or TREC, or a file in SQuAD's
            format), `"tagging"`, `"question_answering"` or `"multiple_choice"`.
        text: Texts: column of the text, a name, or a number from 1 if the file has no header.
        text_pair: Texts: column of the second text.
        label: Texts: column of the label. `None` reads no labels. Default: `"label"`, for
            embeddings and reranking `None`. Label sets: also a list of columns of 0 and 1.
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
        negatives: Embeddings, reranking: a column of hard negatives, or a list of columns. In JSON
            Lines and tables, a column can have a list of texts per row.
        score_range: Embeddings: the lowest and the highest score, such as `(0, 5)`. The scores are
            then scaled to 0 to 1.
        split: Retrieval: the file in `qrels/` of the folder, without its extension. A folder with
            a single `qrels.txt` has no splits.
        limit: Maximum number of examples (texts, sentences or questions). The first ones are read.

    Returns:
        `Examples`, `EmbeddingExamples`, `RankingExamples`, `RetrievalData`, `TaggedSentences`,
        `Questions` or `Choices`, for `finetune` and `evaluate`.

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
    arguments = dict(locals())
    name = task.replace("-", "_") if isinstance(task, str) else task
    readers = {name: task for task in registry.TASKS for name in task.reads}
    if name not in readers:
        raise ValueError(f"task must be one of {', '.join(readers)}; received {shown(task)}")
    reader = readers[name]
    if label is ...:
        arguments["label"] = reader.default_label
    defaults = {name: value.default for name, value in inspect.signature(read).parameters.items()}
    defaults["label"] = reader.default_label
    accepted_options = reader.reads[name]
    for option, value in arguments.items():
        if option in ("data", "task", *accepted_options):
            continue
        # An array has another type than the default; `!=` would compare its items.
        if type(value) is not type(defaults[option]) or value != defaults[option]:
            raise ValueError(f"{option} does not apply to the task {shown(task)}; remove it")
    if isinstance(data, (str, os.PathLike)):
        data = as_path("data", data)
    elif isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        data = tables.of_rows(data)
    return reader.read(name, data, {option: arguments[option] for option in accepted_options})
