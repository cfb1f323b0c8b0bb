"""Find the task module of a model or of examples."""

import keras

from keras_bert.data.examples import Examples
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.tasks.classification import task as classification
from keras_bert.tasks.embedding import task as embedding
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.multiple_choice import task as multiple_choice
from keras_bert.tasks.multiple_choice.data import Choices
from keras_bert.tasks.question_answering import task as question_answering
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.tagging import task as tagging
from keras_bert.tasks.tagging.data import TaggedSentences

_BY_DATA = {
    Examples: classification,
    TaggedSentences: tagging,
    Questions: question_answering,
    Choices: multiple_choice,
    EmbeddingExamples: embedding,
    RetrievalData: embedding,
}
_BY_HEAD = {head: task for task in set(_BY_DATA.values()) for head in task.HEADS}


def for_data(examples):
    """Return the task module for examples.

    Args:
        examples: `Examples`, `TaggedSentences`, `Questions` or `Choices`.

    Returns:
        The module.

    Raises:
        ValueError: If the examples are of another type.
    """
    for kind, task in _BY_DATA.items():
        if isinstance(examples, kind):
            return task
    kinds = ", ".join(kind.__name__ for kind in _BY_DATA)
    raise ValueError(
        f"the data must be one of keras_bert's {kinds}; received {type(examples).__name__}. Files, "
        "DataFrames, Hugging Face datasets and dicts of columns become such data with "
        "keras_bert.read"
    )


def for_model(model):
    """Return the task module of a model.

    Args:
        model: From a function of `keras_bert.heads`.

    Returns:
        The module.

    Raises:
        ValueError: If the model has no head, or a head without a task module.
    """
    output = find_output(model) if isinstance(model, keras.Model) else None
    task = None if output is None else _BY_HEAD.get(output.task)
    if task is None:
        find_encoder(model)  # raises an error if there is none
        if any(find_output(layer) for layer in model.layers if hasattr(layer, "layers")):
            raise ValueError(
                f"{model.name!r} contains a model with a head, as after heads.with_text. Pass that "
                "inner model"
            )
        advice = "fine-tune it first, or use keras_bert.pipeline for embeddings and masked tokens"
        raise ValueError(
            f"{model.name!r} must be a model with one of the heads {', '.join(sorted(_BY_HEAD))}; "
            f"{advice}"
        )
    return task
