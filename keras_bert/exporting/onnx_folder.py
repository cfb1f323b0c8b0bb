"""What an ONNX folder holds. This module needs neither Keras nor onnx."""

import dataclasses

from keras_bert.runtime.escaping import check_name

MODEL_FILE = "model.onnx"
LABELS_FILE = "labels.txt"
# Tasks of texts and pairs.
TEXT_TASKS = ("classifier", "next_sentence", "regressor", "embedder")
TASKS = (*TEXT_TASKS, "tagger", "span_selector", "multiple_choice", "masked_lm", "pretraining")


@dataclasses.dataclass
class OnnxOutput:
    """The attributes of `layers.TaskOutput` that an ONNX folder holds.

    Labels are in a file, and the task is in the metadata of `model.onnx`.
    """

    task: str | None = None
    labels: list[str] | None = None
    pairs: bool = False
    multi_label: bool = False
    no_answer: bool = False
    characters: bool = False
    long_texts: str = "truncate"
    prompts: dict = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str = "cosine"

    def __post_init__(self):
        for name in self.prompts:
            check_name(name, "the name of a prompt")

    @classmethod
    def option_names(cls):
        """Return the names of the attributes except `task` and `labels`."""
        names = [field.name for field in dataclasses.fields(cls)]
        return [name for name in names if name not in ("task", "labels")]
