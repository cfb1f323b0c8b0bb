"""Paths, requests and responses of the REST API, without a server."""

import base64
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.server import rest

TEXT = {"text": tf.TensorSpec((None,), "string")}
PAIR = {"text": tf.TensorSpec((None,), "string"), "text_pair": tf.TensorSpec((None,), "string")}
CHOICES = {
    "text": tf.TensorSpec((None,), "string"),
    "choices": tf.TensorSpec((None, None), "string"),
}
TREE = {"tag": tf.TensorSpec((None,), "string"), "signal": tf.TensorSpec((None, 2), "int32")}


def number(dtype, shape=(None,)):
    return {"x": tf.TensorSpec(shape, dtype)}


def read(document, inputs):
    arrays, _ = rest.read_inputs(rest.parse(json.dumps(document).encode()), inputs)
    return {name: array.tolist() for name, array in arrays.items()}


@pytest.mark.parametrize(
    "body, message",
    [
        (b"", "JSON parse error: Expecting value"),
        (b'{"instances": [1', "JSON parse error"),
        (b'{"instances": ["\xff"]}', "can't decode byte 0xff in position 16"),
        (b"[" * 500_000, "nested values, at most 100"),
        (b'{"instances": [' + b"9" * 100_000 + b"]}", "digits"),
        (b"[1, 2]", r"must be a JSON object; received \[1, 2\]"),
        (b'"' + b"a" * 10_000 + b'"', r"received \"a{199}\.\.\.$"),
    ],
)
def test_invalid_bodies(body, message):
    with pytest.raises(ValueError, match=message):
        rest.parse(body)


def test_byte_order_mark_is_ignored():
    assert rest.parse("\ufeff \n{}".encode()) == {}


@pytest.mark.parametrize(
    "document, inputs, expected",
    [
        ({"instances": ["a", "한"]}, TEXT, {"text": [b"a", "한".encode()]}),
        ({"instances": [{"text": "a"}]}, TEXT, {"text": [b"a"]}),
        ({"inputs": ["a"]}, TEXT, {"text": [b"a"]}),
        ({"inputs": {"text": ["a"]}}, TEXT, {"text": [b"a"]}),
        ({"inputs": []}, TEXT, {"text": []}),
        ({"instances": [{"b64": "/+8="}, "a"]}, TEXT, {"text": [b"\xff\xef", b"a"]}),
        ({"instances": [{"text": {"b64": ""}}]}, TEXT, {"text": [b""]}),
        ({"inputs": {"b64": "YQ=="}}, {"x": tf.TensorSpec((), "string")}, {"x": b"a"}),
        (
            {"instances": [{"text": "a", "text_pair": "b"}]},
            PAIR,
            {"text": [b"a"], "text_pair": [b"b"]},
        ),
        (
            {"instances": [{"text": "a", "choices": ["b", "c"]}]},
            CHOICES,
            {"text": [b"a"], "choices": [[b"b", b"c"]]},
        ),
        (
            {"inputs": {"tag": ["a"], "signal": [[1, 2], [3, 4]]}},
            TREE,
            {"tag": [b"a"], "signal": [[1, 2], [3, 4]]},
        ),
        ({"instances": [1, 2.5]}, number("float32"), {"x": [1.0, 2.5]}),
        ({"instances": [1e300]}, number("float32"), {"x": [np.inf]}),
        ({"instances": [np.inf, -np.inf]}, number("float64"), {"x": [np.inf, -np.inf]}),
        ({"instances": [255]}, number("uint8"), {"x": [255]}),
        ({"instances": [2**64 - 1]}, number("uint64"), {"x": [2**64 - 1]}),
        ({"instances": [True]}, number("bool"), {"x": [True]}),
        ({"inputs": 5}, number("int32", ()), {"x": 5}),
        ({"inputs": [[[1]], [[2]]]}, number("int64", None), {"x": [[[1]], [[2]]]}),
    ],
)
def test_inputs(document, inputs, expected):
    assert read(document, inputs) == expected


@pytest.mark.parametrize(
    "document, inputs, message",
    [
        ({}, TEXT, "either 'instances' or 'inputs'; received neither"),
        ({"instances": ["a"], "inputs": ["a"]}, TEXT, "received both"),
        ({"instances": []}, TEXT, r"at least one row; received \[\]"),
        ({"instances": {"text": "a"}}, TEXT, 'received {"text": "a"}'),
        # A pair for a model of single texts, and a single text for a model of pairs.
        ({"instances": [{"text": "a", "text_pair": "b"}]}, TEXT, "of the signature, .*text"),
        ({"inputs": {"text": ["a"], "text_pair": ["b"]}}, TEXT, "of the signature, .*text"),
        ({"instances": ["a"]}, PAIR, "must be an object with the inputs of .*text_pair"),
        ({"inputs": ["a"]}, PAIR, "'inputs' must be an object"),
        ({"instances": [{"text": "a"}]}, PAIR, "Row 0 of 'instances' must be an object"),
        # Types.
        ({"instances": [1]}, TEXT, "'text' must be a string; received 1"),
        ({"instances": [None]}, TEXT, "received null"),
        ({"instances": [{"b64": "a!"}]}, TEXT, "base64"),
        ({"inputs": [{"b64": 1}]}, TEXT, 'must be a string; received {"b64": 1}'),
        ({"instances": ["\ud800"]}, TEXT, "surrogates"),
        ({"instances": "한국어"}, TEXT, "received \"한국어\""),
        ({"instances": ["1"]}, number("float32"), "of type float32; received \"1\""),
        ({"instances": [1.0]}, number("int32"), "of type int32; received 1.0"),
        ({"instances": [True]}, number("int32"), "received true"),
        ({"instances": [1]}, number("bool"), "of type bool; received 1"),
        ({"instances": [2**31]}, number("int32"), "does not fit into int32"),
        ({"instances": [-1]}, number("uint8"), "does not fit into uint8"),
        ({"instances": [10**400]}, number("float64"), "does not fit into float64"),
        # Shapes.
        ({"instances": [["a"]]}, TEXT, r"must have shape \[null\]; received \[1, 1\]"),
        ({"inputs": "a"}, TEXT, r"must have shape \[null\]; received \[\]"),
        ({"instances": [[1, 2, 3]]}, number("int32", (None, 2)), r"\[null, 2\]; received \[1, 3\]"),
        ({"instances": [[1, 2], [3]]}, number("int32", (None, None)), r"received \[2\]"),
        ({"instances": [1, [2]]}, number("int32"), r"of type int32; received \[2\]"),
        ({"inputs": [[]] * 2 + [1]}, number("int32", None), r"of type int32; received \[\]"),
    ],
)  # fmt: skip
def test_invalid_inputs(document, inputs, message):
    with pytest.raises(ValueError, match=message):
        read(document, inputs)


def test_types_that_json_cannot_hold():
    with pytest.raises(NotImplementedError, match="has type complex64"):
        read({"instances": [1]}, number("complex64"))
    with pytest.raises(ValueError, match="Output 'y' has type complex64"):
        rest.write_outputs({"y": np.zeros(1, np.complex64)}, in_rows=True)


def write(outputs, in_rows):
    return json.loads(rest.write_outputs(outputs, in_rows))


def test_outputs_in_rows_and_in_columns():
    labels = np.array([b"a", "한".encode()], object)
    scores = np.array([[0.1, 2], [1e-7, -3]], np.float32)
    assert write({"label": labels}, True) == {"predictions": ["a", "한"]}
    assert write({"label": labels}, False) == {"outputs": ["a", "한"]}
    assert write({"score": scores, "label": labels}, True) == {
        "predictions": [{"label": "a", "score": [0.1, 2.0]}, {"label": "한", "score": [1e-7, -3.0]}]
    }
    assert write({"score": scores, "label": labels}, False) == {
        "outputs": {"label": ["a", "한"], "score": [[0.1, 2.0], [1e-7, -3.0]]}
    }
    assert write({"y": np.float32(0.5)}, False) == {"outputs": 0.5}
    assert write({"y": np.zeros([2, 0], np.int32)}, True) == {"predictions": [[], []]}
    assert write({"y": np.zeros([0, 3], np.int32)}, False) == {"outputs": []}


def test_special_floats():
    values = np.array([np.nan, np.inf, -np.inf, 5, 0.1, 3e-45, 16777216, 1e20], np.float32)
    text = rest.write_outputs({"y": values}, in_rows=True).decode()
    expected = "[NaN, Infinity, -Infinity, 5.0, 0.1, 3e-45, 16777216.0, 1e+20]"
    assert text == f'{{"predictions": {expected}}}\n'


def test_float32_round_trip():
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    written = write({"y": values}, True)["predictions"]
    np.testing.assert_array_equal(np.array(written, np.float32), values)


def test_outputs_named_bytes_are_base64():
    values = np.array([[b"\xff"], [b"a"]], object)
    encoded = [[{"b64": base64.b64encode(value).decode()}] for value in (b"\xff", b"a")]
    assert write({"image_bytes": values}, True) == {"predictions": encoded}
    # Other string outputs are text. Invalid UTF-8 becomes U+FFFD.
    assert write({"image": values}, True) == {"predictions": [["\ufffd"], ["a"]]}


def test_outputs_without_common_first_dimension_need_column_format():
    outputs = {"a": np.zeros(2), "b": np.zeros(3)}
    assert write(outputs, False) == {"outputs": {"a": [0, 0], "b": [0, 0, 0]}}
    for wrong in (outputs, {"a": np.float64(1)}, {"a": np.zeros(2), "b": np.float64(1)}):
        with pytest.raises(ValueError, match="no common first dimension"):
            rest.write_outputs(wrong, in_rows=True)
