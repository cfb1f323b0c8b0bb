"""Ask each model of a server for an answer to one text. The exit status is 1 if one fails."""

import json
import sys
import urllib.request

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8501"


def request(path, body=None):
    """Return the JSON that the server answers."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{ADDRESS}{path}", data, timeout=4) as response:
        return json.load(response)


for model in request("/models")["models"]:
    path = f"/v1/models/{model['name']}"
    metadata = request(f"{path}/metadata")["metadata"]
    signature = metadata["signature_def"]["signature_def"]["serving_default"]
    row = {
        name: ["a", "b"] if len(tensor["tensor_shape"]["dim"]) == 2 else "a"  # choices, a text
        for name, tensor in signature["inputs"].items()
        if tensor["dtype"] == "DT_STRING"
    }
    if len(row) == len(signature["inputs"]):
        request(f"{path}:predict", {"instances": [row]})
