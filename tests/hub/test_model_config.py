"""Code in the config of a Keras model."""

import pytest

from keras_bert.hub import model_config


@pytest.mark.parametrize(
    ("class_name", "expected"), [("Lambda", "keras.layers.Lambda"), ("Dense", None)]
)
def test_only_a_layer_that_runs_code_is_found(class_name, expected):
    layer = {"module": "keras.layers", "class_name": class_name, "config": {}}
    assert model_config.find_code({"layers": [layer]}) == expected


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [("AbsMaxQuantizer", None), ("GPTQConfig", "keras.quantizers.GPTQConfig")],
)
def test_a_quantization_with_a_data_set_is_found(class_name, expected):
    item = {"module": "keras.quantizers", "class_name": class_name, "config": {}}
    assert model_config.find_code(item) == expected
