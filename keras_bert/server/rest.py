"""TensorFlow Serving's REST API: parse paths and requests, write responses.

An invalid request raises `ValueError`. A type that the API cannot represent raises
`NotImplementedError`. Source: https://www.tensorflow.org/tfx/serving/api_rest. Where that page is
silent (trailing bytes, empty lists, order of checks), this module follows TensorFlow Serving,
except that unknown names in the column format and text that is not UTF-8 are errors.
"""

import base64
import json
import math
import re
import typing
import urllib.parse

import numpy as np

from keras_bert.runtime.reading import check_json

DEFAULT_SIGNATURE = "serving_default"
_DTYPES = ["bool", "object", "float32", "float64"]
_DTYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_BYTES_SUFFIX = "_bytes"  # the API encodes string outputs with this suffix as base64
_MAX_DEPTH = 32  # of nested lists: the number of dimensions that every NumPy supports
_INT64_LIMIT = 2**63

_MODEL = r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_PATHS = {
    "POST": re.compile(_MODEL + ":(?P<verb>predict|classify|regress)", re.IGNORECASE),
    "GET": re.compile(_MODEL + "(?:/(?P<verb>metadata))?", re.IGNORECASE),
}


class Spec(typing.NamedTuple):
    """Type and shape of a tensor.

    `dtype` is NumPy's name, `"object"` for strings. `shape` has `None` for unknown sizes, and is
    `None` for an unknown rank.
    """

    dtype: str
    shape: tuple[int | None, ...] | None


class Call(typing.NamedTuple):
    """A parsed path. `verb` is predict, classify, regress, metadata or status."""

    model: str
    verb: str
    version: int | None = None
    label: str | None = None


def read_path(method, path):
    """Parse method and path of a request, still percent-encoded, and return a `Call`."""
    pattern = _PATHS.get(method)
    match = pattern.fullmatch(path) if pattern else None
    if match is None:
        raise ValueError(f"Malformed request: {method} {path}")
    # Truncate: Python refuses to convert very long numbers, and 20 digits exceed 64 bits.
    version = match["version"] and int(match["version"].lstrip("0")[:20] or 0)
    if version and version >= _INT64_LIMIT:
        raise ValueError(f"A version must be a 64-bit number; received {match['version'][:40]}")
    return Call(
        urllib.parse.unquote(match["model"], errors="strict"),
        (match["verb"] or "status").lower(),
        version or (0 if match["version"] else None),
        match["label"] and urllib.parse.unquote(match["label"], errors="strict"),
    )


def parse(body):
    """Parse the body of a request, a JSON object in UTF-8, and return a dict."""
    if not body.strip():
        raise ValueError("JSON parse error: the body is empty. Send a JSON object.")
    try:
        # Ignore bytes after the object, as TensorFlow Serving does.
        text = body.decode("utf-8").lstrip("\ufeff \t\r\n")
        check_json(text)
        document, _ = _DECODER.raw_decode(text)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"JSON parse error: the body is not UTF-8 at byte {error.start}. Write binary "
            'values as {"b64": "..."}.'
        ) from error
    except ValueError as error:
        # Python's limit on the digits of an integer also raises ValueError.
        reason = "a number has too many digits" if "digits" in str(error) else error
        raise ValueError(f"JSON parse error: {reason}") from error
    if not isinstance(document, dict):
        raise ValueError(f"The body must be a JSON object; received {_show(document)}")
    return document


def read_signature(document):
    """Return the name of the requested signature, by default `DEFAULT_SIGNATURE`."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise ValueError(f"'signature_name' must be a string; received {_show(name)}")
    return name or DEFAULT_SIGNATURE


def read_inputs(document, inputs):
    """Return the input arrays of a predict request, and True for the row format.

    `document` holds `instances` (row format) or `inputs` (column format). The argument `inputs` is
    a dict of the `Spec` of each input. Strings become bytes in object arrays. An input type that
    JSON cannot hold raises `NotImplementedError`.
    """
    in_rows = "instances" in document
    if in_rows == ("inputs" in document):
        received = "both" if in_rows else "neither"
        raise ValueError(f"Send either 'instances' or 'inputs'; received {received}")
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


def status(version):
    """Return the response to a status request for a loaded version."""
    return {
        "model_version_status": [
            {
                "version": str(version),
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }


def metadata(model, version, signatures):
    """Return the response to a metadata request.

    `signatures` is a dict from names to `SignatureDef`s in the JSON format of protocol buffers.
    """
    return {
        "model_spec": {"name": model, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def _decimal(text):
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"The number {_shorten(text)} is too large")
    return number


_DECODER = json.JSONDecoder(parse_float=_decimal)


def _rows_to_columns(rows, inputs):
    """Return a dict of lists with one value per row."""
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"'instances' must be a list of at least one row; received {_show(rows)}")
    named = [_is_named(row) for row in rows]
    if not any(named) and len(inputs) == 1:
        return dict.fromkeys(inputs, rows)
    for index, row in enumerate(rows):
        if not named[index] and any(named):
            raise ValueError(
                "The rows of 'instances' must all be objects or all be plain values; row "
                f"{index} is {_show(row)}"
            )
        _by_name(row, inputs, f"Row {index} of 'instances'")
    return {name: [row[name] for row in rows] for name in inputs}


def _by_name(value, inputs, where):
    """Return a dict with a value per input. A plain value is allowed for a single input."""
    if not _is_named(value):
        if len(inputs) == 1:
            return dict.fromkeys(inputs, value)
        raise ValueError(
            f"{where} must be an object with the inputs {_show_names(inputs)}; received "
            f"{_show(value)}"
        )
    if value.keys() != inputs.keys():
        raise ValueError(
            f"{where} must have the inputs of the signature, {_show_names(inputs)}; received "
            f"{_show_names(value)}. 'signature_name' selects another signature"
        )
    return value


def _is_named(value):
    return isinstance(value, dict) and not _is_binary(value)


def _is_binary(value):
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _array(name, value, spec):
    """Convert nested lists to an array of the signature's type and shape."""
    if spec.dtype not in _DTYPES:
        raise NotImplementedError(
            f"Input {name!r} has type {spec.dtype}, which JSON cannot hold. Use another signature."
        )
    shape, leaves = _flatten(name, value)
    if spec.shape is not None and (
        len(spec.shape) != len(shape)
        or any(want not in (None, size) for want, size in zip(spec.shape, shape, strict=True))
    ):
        raise ValueError(
            f"Input {name!r} must have shape {_show_shape(spec.shape)}; received "
            f"{_show_shape(shape)}"
        )
    array = np.empty(len(leaves), spec.dtype)
    array[:] = _values(name, leaves, spec.dtype)
    return array.reshape(shape)


def _flatten(name, value):
    """Return the shape of nested lists and a list of their values."""
    shape: list[int] = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
        if len(shape) > _MAX_DEPTH:
            raise ValueError(f"Lists may be nested {_MAX_DEPTH} deep; input {name!r} is deeper")
    leaves = [value]
    for depth, size in enumerate(shape):
        for item in leaves:
            if not isinstance(item, list) or len(item) != size:
                raise ValueError(
                    f"Input {name!r} is not rectangular: expected a list of {size} at depth "
                    f"{depth}; received {_show(item)}"
                )
        leaves = [leaf for item in leaves for leaf in item]
    return shape, leaves


def _values(name, leaves, dtype):
    """Return the values of an input after a check of their types."""
    if dtype == "object":
        return [_string(name, leaf) for leaf in leaves]
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
        try:
            return leaf.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Input {name!r} must be valid Unicode; received a single surrogate"
            ) from error
    if not _is_binary(leaf):
        raise ValueError(f"Input {name!r} must be a string; received {_show(leaf)}")
    try:
        # Accept missing padding and the URL-safe alphabet.
        text = leaf["b64"].rstrip("=").replace("-", "+").replace("_", "/")
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise ValueError(f"A 'b64' value in input {name!r} is not base64") from error


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
    if array.dtype.name not in _DTYPES:
        raise ValueError(f"Output {name!r} has type {array.dtype}, which JSON cannot hold")
    if array.dtype == np.float32:  # write the shortest digits: 0.1, not 0.10000000149011612
        array = array.astype("U32").astype(np.float64)
    return array.tolist()


def _show(value):
    """Describe a value for an error message."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {_show_names(value)}"
    return _shorten(json.dumps(value, ensure_ascii=False))


def _show_names(names):
    return _shorten(", ".join(map(repr, sorted(names))) or "no keys")


def _show_shape(sizes):
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"


def _shorten(text, limit=200):
    return text if len(text) <= limit else f"{text[:limit]}..."
