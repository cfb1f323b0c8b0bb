"""Tests of the types of labels."""

import numpy as np
import pytest

from keras_bert.runtime import label_types


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
