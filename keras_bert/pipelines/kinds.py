"""The pipelines of the tasks, with their inputs and results."""

from keras_bert.tasks.classification.pipeline import Classification, Regression
from keras_bert.tasks.masked_tokens.pipeline import MaskedLM
from keras_bert.tasks.multiple_choice.pipeline import MultipleChoice
from keras_bert.tasks.question_answering.pipeline import QuestionAnswering
from keras_bert.tasks.tagging.pipeline import Tagging

KINDS = {
    "classification": Classification,
    "next_sentence": Classification,
    "regression": Regression,
    "tagging": Tagging,
    "question_answering": QuestionAnswering,
    "multiple_choice": MultipleChoice,
    "masked_tokens": MaskedLM,
    "pretraining": MaskedLM,
}
