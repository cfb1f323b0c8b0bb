"""Which task belongs to which data and which model."""

import pytest

from keras_bert import heads
from keras_bert.finetuning import choices, questions, tagging, tasks, texts
from tests import tiny

FUNCTIONS = ["build", "compile_options", "encode", "decode", "score", "header", "lines"]


@pytest.mark.parametrize("task", [texts, tagging, questions, choices])
def test_a_task_is_a_module_with_the_same_functions(task):
    assert all(callable(getattr(task, name)) for name in FUNCTIONS)
    assert set(task.HEADS) <= set(heads.TASKS)
    assert 3 < task.MAX_LENGTH <= 512


def test_data_and_models_know_their_task():
    encoder = tiny.encoder()
    for examples, task in (
        (tiny.examples(), texts),
        (tiny.tagged(), tagging),
        (tiny.questions(), questions),
        (tiny.choices(), choices),
    ):
        assert tasks.for_data(examples) is task
        assert tasks.for_model(task.build(encoder, examples)) is task


def test_what_has_no_task_is_an_error():
    with pytest.raises(ValueError, match="must be one of Examples, .*; received list"):
        tasks.for_data(["a text"])
    with pytest.raises(ValueError, match="an encoder has to be fine-tuned first"):
        tasks.for_model(tiny.encoder())
    with pytest.raises(ValueError, match="must be a model with one of the heads"):
        tasks.for_model(heads.masked_lm(tiny.encoder()))
