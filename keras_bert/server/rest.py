"""TensorFlow Serving's REST API: read predict requests, write responses.

An invalid request raises `ValueError`. A type that the API cannot represent raises
`NotImplementedError`. Source: https://www.tensorflow.org/tfx/serving/api_rest.
"""

import base64
import json
import math

import numpy as np

from keras_bert.runtime.reading import check_json

DEFAULT_SIGNATURE = "serving_default"
_NUMBERS = ["bool", "float32", "float64"]
_NUMBERS += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_BYTES_SUFFIX = "_bytes"  # the API encodes string outputs with this suffix as base64


def parse(body):
    """Parse the body of a request, a JSON object in UTF-8, and return a dict."""
    try:
        text = body.decode("utf-8-sig")
        check_json(text)
        document = json.loads(text, parse_float=_finite)
    except ValueError as error:
        raise ValueError(f"JSON parse error: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"The body must be a JSON object; received {_show(document)}")
    return document


def _finite(number):
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"the number {number[:80]} is too large")
    return value


def read_inputs(document, inputs):
    """Return the input arrays of a predict request, and True for the row format.

    `document` holds `instances` (row format) or `inputs` (column format). The argument `inputs` is
    a dict of the `tf.TensorSpec` of each input. Strings become bytes in object arrays. An input
    type that JSON cannot hold raises `NotImplementedError`.
    """
    formats = [name for name in ("instances", "inputs") if name in document]
    if len(formats) != 1:
        received = "both" if formats else "neither"
        raise ValueError(f"Send either 'instances' or 'inputs'; received {received}")
    in_rows = formats == ["instances"]
    if in_rows:
        columns = _rows_to_columns(document["instances"], inputs)
    else:
        columns = _by_name(document["inputs"], inputs, "'inputs'")
    return {name: _array(name, columns[name], inputs[name]) for name in inputs}, in_rows


def write_outputs(outputs, in_rows):
    """Return a predict response, JSON as bytes, for a dict of output arrays.

    It holds `predictions` (row format) or `outputs` (column format). A single output has no name.
    In the row format, all outputs must have the same first dimension.
    """
    columns = {name: to_lists(name, outputs[name]) for name in sorted(outputs)}
    if in_rows:
        document = {"predictions": _columns_to_rows(outputs, columns)}
    else:
        document = {"outputs": columns if len(columns) != 1 else next(iter(columns.values()))}
    return f"{json.dumps(document, ensure_ascii=False)}\n".encode()


def _rows_to_columns(rows, inputs):
    """Return a dict of lists with one value per row."""
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"'instances' must be a list of at least one row; received {_show(rows)}")
    columns = [
        _by_name(row, inputs, f"Row {index} of 'instances'") for index, row in enumerate(rows)
    ]
    return {name: [column[name] for column in columns] for name in inputs}


def _by_name(value, inputs, where):
    """Return a dict with a value per input. A plain value is allowed for a single input."""
    is_named = isinstance(value, dict) and not _is_binary(value)
    if not is_named and len(inputs) == 1:
        return dict.fromkeys(inputs, value)
    if not is_named or value.keys() != inputs.keys():
        raise ValueError(
            f"{where} must be an object with the inputs of the signature, {_show(sorted(inputs))}; "
            f"received {_show(value)}. 'signature_name' selects another signature"
        )
    return value


def _is_binary(value):
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _array(name, value, spec):
    """Convert nested lists to an array of the signature's type and shape."""
    nested = np.array(value, object)
    if not spec.shape.is_compatible_with(nested.shape):
        raise ValueError(
            f"Input {name!r} must have shape {_show(spec.shape.as_list())}; received "
            f"{_show(nested.shape)}"
        )
    array = np.empty(nested.size, spec.dtype.as_numpy_dtype)
    array[:] = _values(name, nested.ravel().tolist(), spec.dtype.name)
    return array.reshape(nested.shape)


def _values(name, leaves, dtype):
    """Return the values of an input after a check of their types."""
    if dtype == "string":
        return [_string(name, leaf) for leaf in leaves]
    if dtype not in _NUMBERS:
        raise NotImplementedError(
            f"Input {name!r} has type {dtype}, which JSON cannot hold. Use another signature."
        )
    # Compare exact types: bool is a subclass of int in Python, but not in TensorFlow.
    types = {"b": (bool,), "f": (int, float)}.get(np.dtype(dtype).kind, (int,))
    for leaf in leaves:
        if type(leaf) not in types:
            raise ValueError(f"Input {name!r} must be of type {dtype}; received {_show(leaf)}")
    try:
        with np.errstate(over="ignore"):  # as in TensorFlow Serving, overflow is infinity
            return np.array(leaves, dtype)
    except OverflowError as error:
        raise ValueError(f"A number in input {name!r} does not fit into {dtype}") from error


def _string(name, leaf):
    if isinstance(leaf, str):
        return leaf.encode()
    if _is_binary(leaf):
        return base64.b64decode(leaf["b64"], validate=True)
    raise ValueError(f"Input {name!r} must be a string; received {_show(leaf)}")


def _columns_to_rows(outputs, columns):
    """Return a list of rows. A row of several outputs is a dict."""
    shapes = {name: array.shape for name, array in outputs.items()}
    sizes = {shape[:1] for shape in shapes.values()}
    if sizes == {()} or len(sizes) != 1:
        raise ValueError(
            f"The outputs have no common first dimension: {shapes}. Send 'inputs' in place of "
            "'instances' to receive columns."
        )
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def to_lists(name, array):
    """Convert an output array to nested lists for `json.dumps`."""
    if array.dtype == object:
        if name.endswith(_BYTES_SUFFIX):
            items = [{"b64": base64.b64encode(item).decode()} for item in array.ravel()]
        else:
            items = [item.decode(errors="replace") for item in array.ravel()]
        flat = np.empty(len(items), object)
        flat[:] = items
        return flat.reshape(array.shape).tolist()
    if array.dtype.name not in _NUMBERS:
        raise ValueError(f"Output {name!r} has type {array.dtype}, which JSON cannot hold")
    if array.dtype == np.float32:  # write the shortest digits: 0.1, not 0.10000000149011612
        array = array.astype("U32").astype(np.float64)
    return array.tolist()


def _show(value, limit=200):
    """Return the start of a value as JSON, for an error message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}..."
