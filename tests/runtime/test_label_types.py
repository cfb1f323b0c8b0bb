"""Tests of the types of labels."""

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.runtime import label_types
from tests import tiny


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ([1, 0], "int"),
        (np.array([1, 0], np.int32), "int"),
        ([True, np.bool_(False)], "bool"),
        ([0.5, np.float32(1)], "float"),
        (["1", np.str_("0")], "str"),
        ([1, "0"], "str"),
        ([], "str"),
    ],
)
def test_type_of_labels(labels, name):
    assert label_types.name_of_type(labels) == name


@pytest.mark.parametrize(("label", "value"), [("True", True), ("False", False), ("true", False)])
def test_a_boolean_label(label, value):
    assert label_types.typed(label, "bool") is value


def test_a_classifier_keeps_the_type_of_its_labels():
    output = heads.find_output(heads.classifier(tiny.encoder(), labels=np.array([0, 1])))
    assert (output.labels, output.label_type) == (["0", "1"], "int")
    assert type(output).from_config(output.get_config()).label_type == "int"
    output = heads.find_output(heads.classifier(tiny.encoder(), 2))
    assert output.label_type == "str" and "label_type" not in output.get_config()
    with pytest.raises(ValueError, match="label_type must be one of str, int.*received 'date'"):
        heads.TaskOutput("classification", labels=["a", "b"], label_type="date")
