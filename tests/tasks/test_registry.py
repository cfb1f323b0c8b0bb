"""Tests of the registry: the task of each head and of each kind of data."""

import inspect

import keras
import pytest

from keras_bert import heads
from keras_bert.data import tabular
from keras_bert.tasks import registry
from keras_bert.tasks.classification import task as classification
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.multiple_choice import task as multiple_choice
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.question_answering import task as question_answering
from keras_bert.tasks.tagging import data as conll
from keras_bert.tasks.tagging import task as tagging
from tests import tiny

MODULES = {
    classification: tabular.Examples,
    tagging: conll.TaggedSentences,
    question_answering: squad.Questions,
    multiple_choice: swag.Choices,
}


@pytest.mark.parametrize("task", MODULES)
def test_tasks_have_the_same_functions(task):
    for name, arguments in {
        "build": ["encoder", "train"],
        "compile_options": ["model"],
        "encode": ["model", "examples", "max_length"],
        "decode": ["model", "examples", "encoded", "outputs"],
        "score": ["output", "examples", "answers"],
        "records": ["model", "examples", "answers"],
    }.items():
        signature = inspect.signature(getattr(task, name))
        required = [
            p.name for p in signature.parameters.values()
            if p.kind != p.KEYWORD_ONLY and p.name != "probabilities"  # of classes
        ]  # fmt: skip
        assert required == arguments, name
    assert set(task.HEADS) <= set(heads.TASKS)
    assert task.MAX_LENGTH >= 128


def test_task_of_data_and_of_models():
    encoder = tiny.encoder(num_hidden_layers=1)
    for task, kind in MODULES.items():
        assert registry.for_data(object.__new__(kind)) is task
        for head in task.HEADS:
            options = {"num_classes": 2} if head == "classification" else {}
            options |= {"num_tags": 2} if head == "tagging" else {}
            assert registry.for_model(heads.TASKS[head](encoder, **options)) is task


def test_models_and_data_without_a_task_are_rejected():
    encoder = tiny.encoder(num_hidden_layers=1)
    for model in (encoder, heads.masked_lm(encoder)):
        with pytest.raises(
            ValueError, match="one of the heads classification, embedding, multiple_choice"
        ):
            registry.for_model(model)
    with pytest.raises(ValueError, match="must hold one BertEncoder"):
        registry.for_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="Examples, TaggedSentences, .*; received list"):
        registry.for_data(["a"])
