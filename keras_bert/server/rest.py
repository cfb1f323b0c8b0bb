"""TensorFlow Serving's REST API: its paths, and its JSON to NumPy arrays and back.

Nothing here knows a model or a network. What a client did wrong is a `ValueError`; what the JSON
of this API has no place for, a `NotImplementedError`.

Source: https://www.tensorflow.org/tfx/serving/api_rest. Where the server does what the page does
not say (trailing bytes, empty lists, order of checks), this does as the server, but for two: an
unknown name in the column format is an error in place of being ignored, and text that is not
UTF-8 is one as well.
"""

import base64
import json
import math
import re
import typing
import urllib.parse

import numpy as np

DEFAULT_SIGNATURE = "serving_default"
_DTYPES = ["bool", "object", "float32", "float64"]
_DTYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_BYTES = "_bytes"  # outputs with this ending are binary
_DEPTH = 32  # of lists in lists, as many as NumPy always took
_INT64 = 2**63
_BLOCK = 2**14  # values that are written at once

_MODEL = r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_PATHS = {
    "POST": re.compile(_MODEL + ":(?P<verb>predict|classify|regress)", re.IGNORECASE),
    "GET": re.compile(_MODEL + "(?:/(?P<verb>metadata))?", re.IGNORECASE),
}


class Spec(typing.NamedTuple):
    """A tensor of a signature: NumPy's name of its type, `object` for strings, and its shape."""

    dtype: str
    shape: tuple[int | None, ...] | None  # None: any rank


class Call(typing.NamedTuple):
    """What a path asks for; `verb` is predict, classify, regress, metadata or status."""

    model: str
    verb: str
    version: int | None = None
    label: str | None = None


def read_path(method, path):
    """What a request line asks for.

    Args:
        method: of HTTP.
        path: as it was sent, still quoted.

    Returns:
        A `Call`.

    Raises:
        ValueError: the API has no such path.

    Example:

    >>> read_path("POST", "/v1/models/reviews/versions/2:predict")
    Call(model='reviews', verb='predict', version=2, label=None)
    """
    pattern = _PATHS.get(method)
    found = pattern.fullmatch(path) if pattern else None
    if found is None:
        raise ValueError(f"Malformed request: {method} {path}")
    # Zeros in front count for nothing; of a number that is too large some digits tell as much.
    version = found["version"] and int(found["version"].lstrip("0")[:20] or 0)
    if version and version >= _INT64:
        raise ValueError(f"a version is a 64-bit number; received {found['version'][:40]}")
    return Call(
        urllib.parse.unquote(found["model"], errors="strict"),
        (found["verb"] or "status").lower(),
        version or (0 if found["version"] else None),
        found["label"] and urllib.parse.unquote(found["label"], errors="strict"),
    )


def parse(body):
    """The object in a body.

    Args:
        body: bytes.

    Returns:
        A dict.

    Raises:
        ValueError: not UTF-8, not JSON, nested too deeply, a number that nothing holds, or not an
            object.

    Example:

    >>> parse(b'{"instances": [NaN]}')
    {'instances': [nan]}
    """
    if not body.strip():
        raise ValueError("JSON parse error: the body is empty")
    try:
        # Bytes behind the object are ignored, as there.
        document, _ = _DECODER.raw_decode(body.decode("utf-8").lstrip("\ufeff \t\r\n"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"JSON parse error: the body is not UTF-8 at byte {error.start}; binary values are "
            'written {"b64": "..."}'
        ) from error
    except RecursionError as error:
        raise ValueError("JSON parse error: nested too deeply") from error
    except ValueError as error:
        # Python's own limit on digits is a ValueError as well.
        reason = "a number has too many digits" if "digits" in str(error) else error
        raise ValueError(f"JSON parse error: {reason}") from error
    if not isinstance(document, dict):
        raise ValueError(f"a request is a JSON object; received {_show(document)}")
    return document


def read_signature(document):
    """The name of the signature that a request wants.

    Raises:
        ValueError: it is not a string.

    Example:

    >>> read_signature({"instances": [1]})
    'serving_default'
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise ValueError(f"'signature_name' must be a string; received {_show(name)}")
    return name or DEFAULT_SIGNATURE


def read_inputs(document, inputs):
    """The tensors of a predict request.

    Args:
        document: from `parse`, with `instances`, a list of rows, or `inputs`, columns.
        inputs: dict of `Spec`, those of the signature.

    Returns:
        dict of arrays, strings as bytes in arrays of objects; and whether the request is in rows.

    Raises:
        ValueError: other names, types or shapes than the signature's.
        NotImplementedError: the signature has a type that JSON has no place for.

    Example:

    >>> arrays, in_rows = read_inputs({"instances": ["a", "b"]}, {"text": Spec("object", (None,))})
    >>> arrays["text"].tolist(), in_rows
    ([b'a', b'b'], True)
    """
    in_rows = "instances" in document
    if in_rows == ("inputs" in document):
        received = "both" if in_rows else "neither"
        raise ValueError(f"a request has either 'instances' or 'inputs'; received {received}")
    if in_rows:
        columns = _columns(document["instances"], inputs)
    else:
        columns = _named(document["inputs"], inputs, "'inputs'")
    return {name: _array(name, columns[name], inputs[name]) for name in inputs}, in_rows


def write_outputs(outputs, in_rows):
    """A predict response.

    Args:
        outputs: dict of arrays.
        in_rows: whether the request was.

    Returns:
        The JSON, bytes: `predictions`, a list of rows, or `outputs`, columns; without names where
        there is one output.

    Raises:
        ValueError: there are no rows to speak of: the outputs are scalars or differ in their
            first dimension; or an output has a type that JSON has no place for.

    Example:

    >>> json.loads(write_outputs({"score": np.float32([0.1, np.nan])}, in_rows=True))
    {'predictions': [0.1, nan]}
    """
    names = sorted(outputs)
    if in_rows:
        sizes = {outputs[name].shape[:1] for name in names}
        if sizes == {()} or len(sizes) != 1:
            shapes = {name: outputs[name].shape for name in names}
            raise ValueError(f"outputs without a common first dimension have no rows: {shapes}")
        text = f'"predictions": {_write_rows({name: outputs[name] for name in names})}'
    elif len(names) == 1:
        text = f'"outputs": {_write_array(names[0], outputs[names[0]])}'
    else:
        items = (f"{json.dumps(name)}: {_write_array(name, outputs[name])}" for name in names)
        text = f'"outputs": {{{", ".join(items)}}}'
    return f"{{{text}}}\n".encode()


def status(versions):
    """A model's status.

    Args:
        versions: triples of number, state and (code, message).

    Returns:
        A dict for JSON.

    Example:

    >>> status([(1, "AVAILABLE", ("OK", ""))])["model_version_status"][0]["version"]
    '1'
    """
    return {
        "model_version_status": [
            {
                "version": str(number),
                "state": state,
                "status": {"error_code": code, "error_message": message},
            }
            for number, state, (code, message) in versions
        ]
    }


def metadata(model, version, signatures):
    """A version's metadata.

    Args:
        model: its name.
        version: its number.
        signatures: the `SignatureDef`s, name -> dict as protocol buffers write them in JSON.

    Returns:
        A dict for JSON.

    Example:

    >>> metadata("reviews", 1, {})["model_spec"]
    {'name': 'reviews', 'signature_name': '', 'version': '1'}
    """
    return {
        "model_spec": {"name": model, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def _decimal(text):
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {_cut(text)} is too large")
    return number


_DECODER = json.JSONDecoder(parse_float=_decimal)


def _columns(rows, inputs):
    """Name -> list of values, one a row."""
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"'instances' is a list of at least one row; received {_show(rows)}")
    named = [_is_named(row) for row in rows]
    if not any(named) and len(inputs) == 1:
        return dict.fromkeys(inputs, rows)
    for number, row in enumerate(rows):
        if not named[number] and any(named):
            raise ValueError(
                f"'instances' mixes objects and plain values: row {number} is {_show(row)}"
            )
        _named(row, inputs, f"row {number} of 'instances'")
    return {name: [row[name] for row in rows] for name in inputs}


def _named(value, inputs, where):
    """The object that names all inputs; a plain value for a single one."""
    if not _is_named(value):
        if len(inputs) == 1:
            return dict.fromkeys(inputs, value)
        raise ValueError(
            f"{where} must be an object with the inputs {_list(inputs)}; received {_show(value)}"
        )
    if value.keys() != inputs.keys():
        raise ValueError(
            f"{where} must have the inputs {_list(inputs)}, those of the signature; received "
            f"{_list(value)}"
        )
    return value


def _is_named(value):
    return isinstance(value, dict) and not _is_binary(value)


def _is_binary(value):
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _array(name, value, spec):
    """Nested lists as an array of the signature's type and shape."""
    if spec.dtype not in _DTYPES:
        raise NotImplementedError(f"input {name!r} is of type {spec.dtype}, which JSON cannot hold")
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
        if len(shape) > _DEPTH:
            raise ValueError(f"input {name!r} has lists nested more than {_DEPTH} deep")
    leaves = [value]
    for level, size in enumerate(shape):
        for item in leaves:
            if not isinstance(item, list) or len(item) != size:
                raise ValueError(
                    f"input {name!r} is not of one shape: at depth {level} a list of {size} was "
                    f"expected; received {_show(item)}"
                )
        leaves = [leaf for item in leaves for leaf in item]
    expected = spec.shape
    if expected is not None and (
        len(expected) != len(shape)
        or any(want not in (None, size) for want, size in zip(expected, shape, strict=True))
    ):
        raise ValueError(
            f"input {name!r} has the shape {_shape(expected)}; received {_shape(shape)}"
        )
    array = np.empty(len(leaves), spec.dtype)
    array[:] = _values(name, leaves, spec.dtype)
    return array.reshape(shape)


def _values(name, leaves, dtype):
    """The values of an input, checked: Python's bool is an int, and TensorFlow's is not."""
    if dtype == "object":
        return [_string(name, leaf) for leaf in leaves]
    kinds = {"b": (bool,), "f": (int, float)}.get(np.dtype(dtype).kind, (int,))
    for leaf in leaves:
        if type(leaf) not in kinds:
            raise ValueError(f"input {name!r} is of type {dtype}; received {_show(leaf)}")
    try:
        with np.errstate(over="ignore"):  # a float too large is infinite, as there
            return np.array(leaves, dtype)
    except OverflowError as error:
        raise ValueError(f"input {name!r}: a number does not fit into {dtype}") from error


def _string(name, leaf):
    if isinstance(leaf, str):
        try:
            return leaf.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"input {name!r}: half of a surrogate pair is no character") from error
    if not _is_binary(leaf):
        raise ValueError(f"input {name!r} is a string; received {_show(leaf)}")
    try:
        # Padding may be left out, and the alphabet be that of URLs.
        text = leaf["b64"].rstrip("=").replace("-", "+").replace("_", "/")
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise ValueError(f"input {name!r}: a 'b64' value is not base64") from error


def _write_rows(outputs):
    """A list, with an object for each row where there are several outputs."""
    rows = len(next(iter(outputs.values())))
    step = max(1, _BLOCK * rows // max(1, sum(array.size for array in outputs.values())))
    blocks = []
    # In blocks: json.dumps keeps every other thread waiting.
    for start in range(0, rows, step):
        columns = [_plain(name, array[start : start + step]) for name, array in outputs.items()]
        block = columns[0]
        if len(columns) > 1:
            block = [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]
        blocks.append(json.dumps(block, ensure_ascii=False)[1:-1])
    return f"[{', '.join(blocks)}]"


def _write_array(name, array):
    return _write_rows({name: array}) if array.ndim else json.dumps(_plain(name, array))


def _plain(name, array):
    """An array as lists of what JSON knows."""
    if array.dtype == object:
        if name.endswith(_BYTES):
            items = [{"b64": base64.b64encode(item).decode()} for item in array.ravel()]
        else:
            items = [item.decode(errors="replace") for item in array.ravel()]
        flat = np.empty(len(items), object)
        flat[:] = items
        return flat.reshape(array.shape).tolist()
    if array.dtype.name not in _DTYPES:
        raise ValueError(f"output {name!r} is of type {array.dtype}, which JSON cannot hold")
    if array.dtype == np.float32:  # by way of its own digits: 0.1, not 0.10000000149011612
        array = array.astype("U32").astype(np.float64)
    return array.tolist()


def _show(value):
    """A value in a message: short, and what holds others by its kind."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {_list(value)}"
    return _cut(json.dumps(value, ensure_ascii=False))


def _list(names):
    return _cut(", ".join(map(repr, sorted(names))) or "no keys")


def _shape(sizes):
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"


def _cut(text, limit=200):
    return text if len(text) <= limit else f"{text[:limit]}..."
