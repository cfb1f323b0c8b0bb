"""The list of the tasks, and functions that find the task of a model or of data."""

import difflib

from keras_bert.runtime.escaping import shown
from keras_bert.tasks.classification.task import Classification, NextSentence, Regression
from keras_bert.tasks.embedding.task import Embedding
from keras_bert.tasks.masked_tokens.task import MaskedTokens, Pretraining
from keras_bert.tasks.multiple_choice.task import MultipleChoice
from keras_bert.tasks.question_answering.task import QuestionAnswering
from keras_bert.tasks.reranking.task import Reranking
from keras_bert.tasks.sparse_embedding.task import SparseEmbedding
from keras_bert.tasks.tagging.task import Tagging
from keras_bert.tasks.task import Task

# Data belong to the first task that they fit.
TASKS: list[Task] = [
    Classification(),
    Regression(),
    Tagging(),
    QuestionAnswering(),
    MultipleChoice(),
    Embedding(),
    SparseEmbedding(),
    Reranking(),
    MaskedTokens(),
    NextSentence(),
    Pretraining(),
]
# Heads of pretrained models. Fine-tuning replaces them with a new head.
OF_PRETRAINING = tuple(task.name for task in TASKS if task.is_pretraining)


def names() -> list[str]:
    """Return the names of all tasks and of their variants."""
    return [name for task in TASKS for name in (task.name, *task.variants)]


def by_name(name: str) -> Task:
    """Return the task with a name, or with a variant of this name.

    Args:
        name: Such as `"tagging"`. Words can be joined by `-` in place of `_`.

    Returns:
        The `Task`.

    Raises:
        ValueError: If no task has this name.

    Example:

    >>> by_name("tagging"), by_name("multi-label")
    (<task tagging>, <task classification>)
    """
    wanted = str(name).replace("-", "_")
    for task in TASKS:
        if wanted in (task.name, *task.variants):
            return task
    close = difflib.get_close_matches(wanted, names(), 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ValueError(f"task must be one of {', '.join(names())}; received {shown(name)}{hint}")


def head_options(name: str) -> dict:
    """Return the options of the head that a variant stands for; empty for a plain name.

    Example:

    >>> head_options("pair"), head_options("tagging")
    ({'pairs': True}, {})
    """
    return dict(by_name(name).variants.get(name.replace("-", "_"), {}))


def is_variant(name: str, head) -> bool:
    """Return True if a head is that of the task with this name, or of this variant.

    Example:

    >>> from keras_bert.model_spec import HeadSpec
    >>> head = HeadSpec("classification", pairs=True)
    >>> is_variant("pair", head), is_variant("classification", head), is_variant("tagging", head)
    (True, True, False)
    """
    options = head_options(name)
    has_options = all(getattr(head, option) == value for option, value in options.items())
    return head.task == by_name(name).name and has_options


def check_variant(name: str, head, source) -> None:
    """Check that a saved head can be the variant of a task.

    Args:
        name: Such as `"multi_label"`.
        head: A `HeadSpec` or a `layers.TaskOutput`.
        source: Where it was saved, for the error.

    Raises:
        ValueError: If an option of the head is known and has another value than the variant.

    Example:

    >>> from keras_bert.model_spec import HeadSpec
    >>> check_variant("pair", HeadSpec("classification"), "my_folder")
    """
    for option, value in head_options(name).items():
        saved = getattr(head, option)
        if saved is not None and saved != value:
            raise ValueError(
                f"{source} has {option}={saved}, but task={name!r} needs {option}={value}. "
                "Pass task='auto', or fresh_head=True for a new head"
            )


def for_data(examples) -> Task:
    """Return the task for examples.

    Args:
        examples: `Examples`, `TaggedSentences`, `Questions`, or the data of another task.

    Returns:
        The `Task`.

    Raises:
        ValueError: If the examples are of another type.
    """
    for task in TASKS:
        if task.fits(examples):
            return task
    kinds = dict.fromkeys(kind.__name__ for task in TASKS for kind in task.data)
    raise ValueError(
        f"the data must be one of keras_bert's {', '.join(kinds)}; received "
        f"{type(examples).__name__}. Read files, DataFrames, Hugging Face datasets and dicts of "
        "columns with keras_bert.read"
    )


def for_model(model) -> Task:
    """Return the task of a model.

    Args:
        model: From a function of `keras_bert.heads`.

    Returns:
        The `Task`.

    Raises:
        ValueError: If the model has no head, or one of a task that is not in `TASKS`.
    """
    from keras_bert.model_structure import find_encoder

    task = find(model)
    if task is not None:
        return task
    find_encoder(model)  # raises an error if there is none
    raise ValueError(
        f"{model.name!r} must itself have the head of a task. Pass that inner model if there is "
        "one; else fine-tune it first, or use keras_bert.pipeline for embeddings and masked tokens"
    )


def lower_is_better(metric: str) -> bool:
    """Return True for an error such as "rmse", False for a score."""
    return any(metric in task.lower_is_better for task in TASKS)


def is_baseline(metric: str) -> bool:
    """Return True for a metric that a model without use reaches, such as "majority"."""
    return any(metric in task.baselines.values() for task in TASKS)


def find(model) -> Task | None:
    """Return the task of a model, or `None` if it has no head.

    Raises an error for a task that is not in `TASKS`.
    """
    import keras

    from keras_bert.model_structure import find_task

    name = find_task(model) if isinstance(model, keras.Model) else None
    if name is not None and name not in names():
        raise ValueError(
            f"the model {model.name!r} has the task {shown(name)}, which keras_bert does not know. "
            "First import the module that adds it to keras_bert.tasks.registry.TASKS"
        )
    return None if name is None else by_name(name)
