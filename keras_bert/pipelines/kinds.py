"""The pipelines of the tasks, with their inputs and results."""

from keras_bert.tasks.classification.pipeline import Classification, Regression
from keras_bert.tasks.masked_tokens.pipeline import MaskedLM
from keras_bert.tasks.multiple_choice.pipeline import MultipleChoice
from keras_bert.tasks.question_answering.pipeline import QuestionAnswering
from keras_bert.tasks.tagging.pipeline import Tagging

KINDS = {
    "classifier": Classification,
    "next_sentence": Classification,
    "regressor": Regression,
    "tagger": Tagging,
    "span_selector": QuestionAnswering,
    "multiple_choice": MultipleChoice,
    "masked_lm": MaskedLM,
    "pretraining": MaskedLM,
}
