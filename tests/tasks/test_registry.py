"""Tests of the registry: the task of each head and of each kind of data."""

import keras
import numpy as np
import pytest

from keras_bert import heads
from keras_bert.layers import TaskOutput
from keras_bert.tasks import registry
from tests import tiny


def test_variants():
    for name in ("pair", "multi_label", "multi-label"):
        assert registry.by_name(name).name == "classification"
    encoder = tiny.encoder(num_hidden_layers=1)
    model = heads.classifier(encoder, 2, **registry.head_options("pair"))
    assert registry.for_model(model).variant_of(heads.find_output(model)) == "pair"


def test_unknown_names():
    with pytest.raises(ValueError, match="task must be one of .*did you mean tagging"):
        registry.by_name("taging")


def test_models_and_data_without_a_task_are_rejected():
    with pytest.raises(ValueError, match="must itself have the head of a task"):
        registry.for_model(tiny.encoder(num_hidden_layers=1))
    with pytest.raises(ValueError, match="must hold one BertEncoder"):
        registry.for_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="Examples, TaggedSentences, .*; received list"):
        registry.for_data(["a"])


def test_a_model_of_a_task_that_is_not_imported():
    encoder = tiny.encoder(num_hidden_layers=1)
    inputs = encoder.input
    output = TaskOutput("readability", name="output")
    model = keras.Model(inputs, output(encoder(inputs)["pooled_output"]), name="reader")
    with pytest.raises(ValueError, match="'reader' has the task 'readability', .* First import"):
        registry.for_model(model)


def test_names_of_labels_as_the_number_of_classes():
    encoder = tiny.encoder(num_hidden_layers=1)
    with pytest.raises(ValueError, match="must be an integer; received .*For names, give labels="):
        heads.classifier(encoder, ["bad", "good"])
    assert heads.classifier(encoder, np.int64(3)).output_shape == (None, 3)
