"""The last layer of a head, which holds the task and its labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.activations import activation as activation_function
from keras_bert.runtime import label_types
from keras_bert.runtime.arguments import (
    LONG_TEXTS,
    SIMILARITIES,
    as_number,
    check_one_of,
    check_prompts,
)
from keras_bert.runtime.escaping import check_name


@keras.saving.register_keras_serializable(package="keras_bert")
class TaskOutput(keras.layers.Layer):
    """Last layer of a head: logits in float32, with the task and its labels.

    It has no weights. Its config keeps the task and the labels in a saved model.

    Args:
        task: Name of the task.
        labels: Names of the classes, in the order of the logits, or `None`.
        pairs: If True, the model reads pairs of texts.
        multi_label: If True, a text can have several classes, or none.
        no_answer: If True, a question can have no answer.
        names: Names of the outputs, one per logit. Defaults to one output with all logits.
        characters: If True, the words to tag are single characters.
        long_texts: `"truncate"`, `"window"` to average the answers for parts of long texts, or
            `"error"`.
        prompts: Dict from names to texts that come before each text to embed, or `None`.
        default_prompt: Name of the prompt that is used by default, or `None`.
        similarity: How to compare embeddings: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`.
        label_type: The type of the labels in results: `"str"`, `"int"`, `"float"` or `"bool"`.
        activation: Name of a Keras activation that is applied to the logits, such as `"sigmoid"`
            for the scores of a cross-encoder, or `None`.
        target_mean: Mean of the numbers that the model predicts. Logits are standardized: they are
            multiplied by `target_scale`, then this is added.
        target_scale: Standard deviation of these numbers.

    Raises:
        ValueError: If `long_texts`, the similarity or the default prompt is unknown, or a name is
            empty or has control characters. In a call, if there are not as many logits as labels.

    Example:

    >>> tuple(TaskOutput("classification", labels=["no", "yes"])(keras.ops.ones((1, 2))).shape)
    (1, 2)
    """

    def __init__(
        self,
        task: str,
        labels: Sequence[Any] | None = None,
        pairs: bool = False,
        multi_label: bool = False,
        no_answer: bool = False,
        names: Sequence[str] | None = None,
        characters: bool = False,
        long_texts: str = "truncate",
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        similarity: str = "cosine",
        label_type: str = "str",
        activation: str | None = None,
        target_mean: float = 0.0,
        target_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        check_one_of("label_type", label_type, label_types.NAMES)
        check_one_of("long_texts", long_texts, LONG_TEXTS)
        check_one_of("similarity", similarity, SIMILARITIES)
        check_prompts(prompts or {}, default_prompt)
        _check_names("a label", labels)
        _check_names("the name of an output", names)
        self.task = task
        self.pairs = pairs
        self.multi_label = multi_label
        self.no_answer = no_answer
        self.characters = characters
        self.long_texts = long_texts
        self.default_prompt = default_prompt
        self.similarity = similarity
        self.label_type = label_type
        self.activation = activation
        self.target_mean = as_number("target_mean", target_mean)
        self.target_scale = as_number("target_scale", target_scale)
        self._activation_function = activation_function(activation or "linear")
        # Tuples, because Keras replaces list attributes with tracked lists.
        self._prompts = tuple((prompts or {}).items())
        self._labels = None if labels is None else tuple(str(label) for label in labels)
        self._names = None if names is None else tuple(names)
        self.supports_masking = True  # pass on masks of Keras layers in a user's model
        self.built = True

    @property
    def labels(self):
        """List of the class names, or `None`."""
        return None if self._labels is None else list(self._labels)

    @property
    def prompts(self):
        """Dict from the names of prompts to their texts."""
        return dict(self._prompts)

    @property
    def is_standardized(self):
        """True if the logits are not the numbers themselves."""
        return (self.target_mean, self.target_scale) != (0.0, 1.0)

    def call(self, logits):
        """Return logits (batch, ..., labels) in float32; with names, a dict of (batch, ...)."""
        if self._labels is not None and logits.shape[-1] != len(self._labels):
            raise ValueError(
                f"the number of labels must be the number of logits; received "
                f"{len(self._labels)} labels for {logits.shape[-1]} logits"
            )
        logits = ops.cast(logits, "float32")
        if self.is_standardized:
            logits = logits * self.target_scale + self.target_mean
        logits = self._activation_function(logits)
        if self._names is None:
            return logits
        return {name: logits[..., index] for index, name in enumerate(self._names)}

    def compute_output_spec(self, logits):
        if self._names is None:
            return keras.KerasTensor(logits.shape, dtype="float32")
        return {name: keras.KerasTensor(logits.shape[:-1], "float32") for name in self._names}

    def get_config(self):
        config = {
            **super().get_config(),
            "task": self.task,
            "labels": self.labels,
            "pairs": self.pairs,
            "multi_label": self.multi_label,
            "no_answer": self.no_answer,
            "names": None if self._names is None else list(self._names),
            "characters": self.characters,
            "long_texts": self.long_texts,
            "prompts": self.prompts,
            "default_prompt": self.default_prompt,
            "similarity": self.similarity,
            "activation": self.activation,
        }
        if self.label_type != "str":
            config["label_type"] = self.label_type
        if self.is_standardized:
            config |= {"target_mean": self.target_mean, "target_scale": self.target_scale}
        return config


def _check_names(what, names):
    """Raise a `ValueError` unless all names can be shown; `names` may be `None`."""
    for name in names or ():
        check_name(str(name), what)
