"""The tasks by name, by head, and by the data they learn from."""

from keras_bert import heads
from keras_bert.data.tabular import Examples
from keras_bert.tasks import classification, multiple_choice, question_answering, tagging

_BY_DATA = {
    Examples: classification,
    tagging.TaggedSentences: tagging,
    question_answering.Questions: question_answering,
    multiple_choice.Choices: multiple_choice,
}
_BY_HEAD = {head: task for task in set(_BY_DATA.values()) for head in task.HEADS}


def for_data(examples):
    """The task module that learns from a kind of examples.

    Args:
        examples: `Examples`, `TaggedSentences`, `Questions` or `Choices`.

    Returns:
        The module.

    Raises:
        ValueError: anything else.

    Example:

    >>> for_data(Examples(["a"])).__name__
    'keras_bert.tasks.classification'
    """
    if type(examples) not in _BY_DATA:
        kinds = ", ".join(kind.__name__ for kind in _BY_DATA)
        raise ValueError(
            f"examples must be one of {kinds}; received {type(examples).__name__}, "
            "see keras_bert.data.tabular"
        )
    return _BY_DATA[type(examples)]


def for_model(model):
    """The task module of a trained model.

    Args:
        model: from a function of `keras_bert.heads`.

    Returns:
        The module.

    Raises:
        ValueError: the model has no head, or one without a task here.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> for_model(heads.regressor(encoder)).__name__
    'keras_bert.tasks.classification'
    """
    heads.find_encoder(model)
    output = heads.find_output(model)
    task = None if output is None else _BY_HEAD.get(output.task)
    if task is None:
        advice = {"masked_lm": "fill.fill asks it", "embedder": "predict.embed asks it"}.get(
            output and output.task, "an encoder has to be fine-tuned first"
        )
        raise ValueError(
            f"{model.name!r} must be a model with one of the heads {', '.join(sorted(_BY_HEAD))}; "
            f"{advice}"
        )
    return task
