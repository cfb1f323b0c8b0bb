"""Paths, requests and responses of the REST API, without a server."""

import base64
import json

import numpy as np
import pytest

from keras_bert.server import rest
from keras_bert.server.rest import Call, Spec

TEXT = {"text": Spec("object", (None,))}
PAIR = {"text": Spec("object", (None,)), "text_pair": Spec("object", (None,))}
CHOICES = {"text": Spec("object", (None,)), "choices": Spec("object", (None, None))}
TREE = {"tag": Spec("object", (None,)), "signal": Spec("int32", (None, 2))}


def number(dtype, shape=(None,)):
    return {"x": Spec(dtype, shape)}


def read(document, inputs):
    arrays, _ = rest.read_inputs(rest.parse(json.dumps(document).encode()), inputs)
    return {name: array.tolist() for name, array in arrays.items()}


@pytest.mark.parametrize(
    "method, path, call",
    [
        ("POST", "/v1/models/m:predict", Call("m", "predict")),
        ("POST", "/v1/models/m/versions/12:predict", Call("m", "predict", 12)),
        ("POST", "/v1/models/m/labels/stable:classify", Call("m", "classify", None, "stable")),
        ("POST", "/V1/Models/M:Regress", Call("M", "regress")),
        ("POST", "/v1/models/%ED%95%9C%20a:predict", Call("한 a", "predict")),
        ("GET", "/v1/models/m", Call("m", "status")),
        ("GET", "/v1/models/m/versions/0", Call("m", "status", 0)),
        ("GET", f"/v1/models/m/versions/{'0' * 30}7", Call("m", "status", 7)),
        ("GET", "/v1/models/m/versions/3/metadata", Call("m", "metadata", 3)),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", Call("../../etc/passwd", "status")),
    ],
)
def test_paths(method, path, call):
    assert rest.read_path(method, path) == call


@pytest.mark.parametrize(
    "method, path, message",
    [
        ("GET", "/v1/models/m:predict", "Malformed request: GET /v1/models/m:predict"),
        ("POST", "/v1/models/m", "Malformed"),
        ("POST", "/v1/models/m/metadata", "Malformed"),
        ("GET", "/v1/models", "Malformed"),
        ("GET", "/v1/models/../m", "Malformed"),
        ("GET", "/v1/models/m/versions/x", "Malformed"),
        ("GET", "/v1/models/m/versions/-1", "Malformed"),
        ("GET", "/v1/models/m/versions/٣", "Malformed"),
        ("GET", "/v1/models/m/versions/1/labels/a", "Malformed"),
        ("PUT", "/v1/models/m", "Malformed"),
        ("GET", f"/v1/models/m/versions/{2**63}", "64-bit"),
        ("GET", f"/v1/models/m/versions/{'9' * 5000}", "64-bit"),
        ("GET", "/v1/models/%ff", "can't decode"),
    ],
)
def test_invalid_paths(method, path, message):
    with pytest.raises(ValueError, match=message):
        rest.read_path(method, path)


@pytest.mark.parametrize(
    "body, message",
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"instances = [1]", "JSON parse error"),
        (b'{"instances": [1', "JSON parse error"),
        (b'{"instances": ["\xff"]}', "not UTF-8 at byte 16"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"[" * 500_000, "nested values, at most 100"),
        (b'{"a":' * 100_000, "nested values, at most 100"),
        (b'{"instances": [' + b"9" * 100_000 + b"]}", "too many digits"),
        (b'{"instances": [1e999]}', "number 1e999 is too large"),
        (b'{"instances": [-1e999]}', "too large"),
        (b"[1, 2]", "must be a JSON object; received a list of 2"),
        (b"null", "received null"),
        (b'"' + b"a" * 10_000 + b'"', r"received \"a{199}\.\.\.$"),
    ],
)
def test_invalid_bodies(body, message):
    with pytest.raises(ValueError, match=message):
        rest.parse(body)


def test_byte_order_mark_and_trailing_bytes_are_ignored():
    assert rest.parse("\ufeff \n{} trailing".encode()) == {}


def test_signature_names():
    assert rest.read_signature({}) == rest.read_signature({"signature_name": ""})
    assert rest.read_signature({"signature_name": "ids"}) == "ids"
    with pytest.raises(ValueError, match="must be a string; received 100"):
        rest.read_signature({"signature_name": 100})


@pytest.mark.parametrize(
    "document, inputs, expected",
    [
        ({"instances": ["a", "한"]}, TEXT, {"text": [b"a", "한".encode()]}),
        ({"instances": [{"text": "a"}]}, TEXT, {"text": [b"a"]}),
        ({"inputs": ["a"]}, TEXT, {"text": [b"a"]}),
        ({"inputs": {"text": ["a"]}}, TEXT, {"text": [b"a"]}),
        ({"inputs": []}, TEXT, {"text": []}),
        ({"instances": [{"b64": "/+8="}, "a"]}, TEXT, {"text": [b"\xff\xef", b"a"]}),
        ({"instances": [{"b64": "_-8"}]}, TEXT, {"text": [b"\xff\xef"]}),
        ({"instances": [{"text": {"b64": ""}}]}, TEXT, {"text": [b""]}),
        ({"inputs": {"b64": "YQ=="}}, {"x": Spec("object", ())}, {"x": b"a"}),
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
        ({"instances": []}, TEXT, "at least one row; received a list of 0"),
        ({"instances": "a"}, TEXT, 'at least one row; received "a"'),
        ({"instances": {"text": "a"}}, TEXT, "received an object with 'text'"),
        # A pair for a model of single texts, and a single text for a model of pairs.
        ({"instances": [{"text": "a", "text_pair": "b"}]}, TEXT, "received 'text', 'text_pair'"),
        ({"inputs": {"text": ["a"], "text_pair": ["b"]}}, TEXT, "of the signature, 'text'"),
        ({"instances": ["a"]}, PAIR, "must be an object with the inputs 'text', 'text_pair'"),
        ({"inputs": ["a"]}, PAIR, "'inputs' must be an object"),
        ({"instances": [{"text": "a"}]}, PAIR, "Row 0 of 'instances' must have .* received 'text'"),
        ({"inputs": {"text": ["a"]}}, PAIR, "'text', 'text_pair'; received 'text'"),
        ({"instances": [{"text": "a"}, "b"]}, TEXT, "all be plain values; row 1 is \"b\""),
        # Types.
        ({"instances": [1]}, TEXT, "'text' must be a string; received 1"),
        ({"instances": [None]}, TEXT, "received null"),
        ({"instances": [{"b64": "a!"}]}, TEXT, "not base64"),
        ({"inputs": [{"b64": 1}]}, TEXT, "must be a string; received an object with 'b64'"),
        ({"instances": ["\ud800"]}, TEXT, "single surrogate"),
        ({"instances": ["1"]}, number("float32"), "of type float32; received \"1\""),
        ({"instances": [1.0]}, number("int32"), "of type int32; received 1.0"),
        ({"instances": [True]}, number("int32"), "received true"),
        ({"instances": [1]}, number("bool"), "of type bool; received 1"),
        ({"instances": [2**31]}, number("int32"), "does not fit into int32"),
        ({"instances": [-1]}, number("uint8"), "does not fit into uint8"),
        ({"instances": [10**400]}, number("float64"), "does not fit into float64"),
        # Shapes.
        ({"instances": [["a"]]}, TEXT, r"must have shape \[\?\]; received \[1, 1\]"),
        ({"inputs": "a"}, TEXT, r"must have shape \[\?\]; received \[\]"),
        ({"instances": [[1, 2, 3]]}, number("int32", (None, 2)), r"\[\?, 2\]; received \[1, 3\]"),
        ({"instances": [[1, 2], [3]]}, number("int32", (None, None)), "at depth 1"),
        ({"instances": [[1], 2]}, number("int32", (None, None)), "a list of 1 .* received 2"),
        ({"instances": [1, [2]]}, number("int32"), "received a list of 1"),
        ({"inputs": [[]] * 2 + [1]}, number("int32", None), "expected a list of 0"),
    ],
)  # fmt: skip
def test_invalid_inputs(document, inputs, message):
    with pytest.raises(ValueError, match=message):
        read(document, inputs)


def test_depth_of_nested_lists_is_limited():
    value = 1
    for _ in range(90):
        value = [value]
    with pytest.raises(ValueError, match="nested 32 deep"):
        read({"inputs": value}, number("int32", None))


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


def test_status_matches_the_protocol_buffer():
    message = pytest.importorskip("tensorflow_serving.apis.get_model_status_pb2")
    from google.protobuf import json_format

    document = rest.status(2)
    parsed = json_format.ParseDict(document, message.GetModelStatusResponse())
    assert [item.version for item in parsed.model_version_status] == [2]
    assert parsed.model_version_status[0].status.error_message == ""
    assert (
        json_format.MessageToDict(
            parsed, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        == document
    )
