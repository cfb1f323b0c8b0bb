"""Checks of the inputs and options of a pipeline."""

from collections.abc import Iterable

from keras_bert.runtime.arguments import is_dataframe
from keras_bert.runtime.escaping import shown

SOURCE = "the inputs"


def listed(inputs, name="inputs"):
    """Return inputs as a list, and True if they are a single string."""
    if getattr(inputs, "ndim", 1) == 0:
        inputs = inputs.item()
    if isinstance(inputs, (str, bytes)):
        return [inputs], True
    is_table = isinstance(inputs, (dict, set, frozenset)) or is_dataframe(inputs)
    if is_table or not isinstance(inputs, Iterable):
        raise ValueError(f"{name} must be a string or a list of strings; received {shown(inputs)}")
    return list(inputs), False


def is_pair(row):
    """Return True for a list, tuple or array of two."""
    is_listed = hasattr(row, "__len__") and not isinstance(row, (str, bytes, dict, set, frozenset))
    return is_listed and len(row) == 2


def check_texts(texts, what="text"):
    """Return the texts; raise a `ValueError` that gives the number of one that is no string."""
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise ValueError(f"{what} {number} must be a string; received {shown(text)}")
    return texts


def check_data(name, data, kinds):
    """Raise an error for data of other classes than `kinds`; `name` is what takes the data."""
    if not isinstance(data, kinds):
        names = " or ".join(dict.fromkeys(kind.__name__ for kind in kinds))
        raise ValueError(
            f"{name} takes {names}; received {type(data).__name__}. Read files and tables with "
            "keras_bert.read"
        )


def check_not_given(**inputs):
    """Raise an error for the first input that is not `None`."""
    for name, value in inputs.items():
        if value is not None:
            raise ValueError(f"{name} is not an input of this task; remove it")


def prompt_of(output, prompt=None):
    """Return the text of a prompt: a name of the model's prompts, a text, or its default prompt."""
    if prompt is None:
        prompt = output.default_prompt or ""
    if not isinstance(prompt, str):
        raise ValueError(
            f"prompt must be the name of a prompt of the model or a text; received {shown(prompt)}"
        )
    if prompt not in output.prompts and prompt.isidentifier():
        has = f"has the prompts {', '.join(output.prompts)}" if output.prompts else "has no prompts"
        raise ValueError(f"the model {has}; received {shown(prompt)}. Your own ends with a colon")
    return output.prompts.get(prompt, prompt)
