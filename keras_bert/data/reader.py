"""Read a labeled file for any task."""

from keras_bert.data import conll, squad, swag, tabular

# Task -> how `tabular.read` reads labels.
LABEL_KINDS = {
    "classification": "label",
    "pair": "label",
    "multi_label": "label_set",
    "regression": "score",
}
TASKS = (*LABEL_KINDS, "tagging", "question_answering", "multiple_choice")


def read(path, task="classification", **options):
    r"""Read the examples of a task from a file.

    Args:
        path: File. Texts: TSV, CSV or JSON Lines. Tagging: CoNLL columns or CoNLL-U. Question
            answering: SQuAD's JSON. Multiple choice: JSON Lines or SWAG's CSV.
        task: `"classification"`, `"pair"`, `"multi_label"`, `"regression"`, `"tagging"`,
            `"question_answering"` or `"multiple_choice"`.
        **options: Options of the reader: `text`, `text_pair`, `label`, `separator`, `format`,
            `header` and `limit` for texts (see `data.tabular.read`), `word`, `tag`, `format` and
            `limit` for tagging (see `data.conll.read`), `limit` for question answering (see
            `data.squad.read`), `format` and `limit` for multiple choice (see `data.swag.read`).

    Returns:
        `data.examples.Examples`, `data.conll.TaggedSentences`, `data.squad.Questions` or
        `data.swag.Choices`, for `finetune` and `evaluate`.

    Raises:
        ValueError: If the task is unknown, or the file is not valid.
        OSError: If the file cannot be read.

    Example:

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mail.tsv")
    ...     _ = file.write_text("label\ttext\nspam\tWin now\nham\tSee you at six\n")
    ...     read(file).labels
    ['spam', 'ham']
    """
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; received {task!r}")
    if task in LABEL_KINDS:
        options = {"text": "text", "label": "label", "kind": LABEL_KINDS[task], **options}
        if task == "pair" and options.get("text_pair") is None:
            raise ValueError("the task 'pair' needs text_pair, the column of the second text")
        return tabular.read(path, **options)
    reader = {"tagging": conll, "question_answering": squad, "multiple_choice": swag}[task]
    return reader.read(path, **options)
