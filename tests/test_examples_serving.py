"""Tests of examples/serving: both clients, the settings, the proxy and the README.

TensorFlow Serving does not run here. The REST client is tested with the local server, the gRPC
client with a server in this process that has TensorFlow Serving's messages.
"""

import base64
import concurrent.futures
import contextlib
import functools
import http.client
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time

import grpc
import pytest
import tensorflow as tf
from starlette.testclient import TestClient

import keras_bert
from keras_bert.server import models
from keras_bert.tasks import registry
from tests import served, tiny
from tests.conftest import ROOT
from tests.server.test_app import serving

pytest.importorskip("tensorflow_serving")

from tensorflow_serving.apis import (  # noqa: E402
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

FOLDER = ROOT / "examples" / "serving"
HEADS = ("classification", "tagging", "reader")


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The methods Predict and GetModelMetadata of TensorFlow Serving."""

    def __init__(self, folder):
        self.paths = {path.parent.name: str(path) for path in folder.glob("*/1")}
        self.load = functools.cache(tf.saved_model.load)
        self.requests = []

    def _find(self, spec, context):
        asked = spec.WhichOneof("version_choice")
        if spec.name not in self.paths or asked == "version" and spec.version.value != 1:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found: {spec.name}")
        return self.paths[spec.name]

    def Predict(self, request, context):  # noqa: N802
        self.requests.append(request)
        model = self.load(self._find(request.model_spec, context))
        signature = model.signatures[request.model_spec.signature_name or "serving_default"]
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        outputs = signature(**{name: tf.constant(value) for name, value in inputs.items()})
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(request.model_spec)
        for name, value in outputs.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response

    def GetModelMetadata(self, request, context):  # noqa: N802
        assert list(request.metadata_field) == ["signature_def"]
        graph = served.graph(self._find(request.model_spec, context))
        definitions = get_model_metadata_pb2.SignatureDefMap()
        for key, value in graph.signature_def.items():
            definitions.signature_def[key].CopyFrom(value)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata["signature_def"].Pack(definitions)
        return response


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in HEADS:
        served.head(name, folder / name)

    def distance(text, text_pair):  # one output, like a regressor of pairs
        return {
            "score": tf.cast(tf.strings.length(text) - tf.strings.length(text_pair), tf.float32)
        }

    call = served.function(distance, "text", "text_pair")
    served.save(tf.Module(), folder / "pairs" / "1", call)
    return folder


@pytest.fixture(scope="module")
def rest(folder):
    """The arguments that lead rest_client.py to a server."""
    with serving(models.find(folder), timeout=30) as port:
        yield ["--url", f"http://127.0.0.1:{port}/"]


@pytest.fixture(scope="module")
def service(folder):
    return Service(folder)


@pytest.fixture(scope="module")
def channel(service):
    """Arguments of grpc_client.py for a running server."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield ["--address", f"127.0.0.1:{port}"]
    server.stop(None).wait()


@pytest.fixture
def ask(rest, channel, capsys, monkeypatch):
    """Function that runs a client and returns what it prints."""

    def run(client, *arguments):
        file = FOLDER / f"{client}_client.py"
        address = {"rest": rest, "grpc": channel}[client]
        monkeypatch.setattr(sys, "argv", [file.name, *address, *arguments])
        runpy.run_path(str(file), run_name="__main__")
        return capsys.readouterr().out

    return run


CONTEXT = "한국어 film so good"
# Arguments of the clients, and what they print, a regular expression.
ANSWERS = {
    "classes": (
        ["--model", "classification", "so good", "이 영화", ""],
        r"so good\n( +\w+ +.+\n){3}이 영화\n( +\w+ +.+\n){3}\n( +\w+ +.+\n){3}",
    ),
    "tags": (
        ["--model", "tagging", "한국어 film, so bad", "a"],
        r"[\s\S]*  한국어 +[BI]-\w+ +0\.\d\d  bytes 0 to 9\n"
        r"  film +[BI]-\w+ +0\.\d\d  bytes 10 to 14\n[\s\S]*\na\n.*\n",
    ),
    "questions about a context": (
        ["--model", "reader", "is this bad", "so", "--second", CONTEXT],
        r"is this bad\n( +(answer|start|end|score) +.+\n){4}so\n( .+\n){4}",
    ),
    "a pair": (["--model", "pairs", "good", "--second", "so bad"], r"good\n +\w+ +-2\.0\n"),
    "pairs": (
        ["--model", "pairs", "a", "abc", "--second", "c", "--second", "d"],
        r"a\n +\w+ +0\.0\nabc\n +\w+ +2\.0\n",
    ),
    "one second text for all": (
        ["--model", "pairs", "a", "b", "--second", ""], r"a\n +\w+ +1\.0\nb\n +\w+ +1\.0\n"
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("client", ["rest", "grpc"])
@pytest.mark.parametrize("name", ANSWERS)
def test_clients_print_the_answers(ask, client, name):
    arguments, expected = ANSWERS[name]
    printed = ask(client, *arguments)
    assert re.fullmatch(expected, printed), printed


def test_health_check_of_the_image(tmp_path, monkeypatch):
    call = served.function(lambda text: {"length": tf.strings.length(text)}, "text")
    served.save(tf.Module(), tmp_path / "lengths" / "1", call)
    program = str(ROOT / "docker" / "health.py")
    with serving(models.find(tmp_path)) as port:
        monkeypatch.setattr(sys, "argv", ["health.py", f"http://127.0.0.1:{port}"])
        runpy.run_path(program)
    monkeypatch.setattr(sys, "argv", ["health.py", "http://127.0.0.1:1"])
    with pytest.raises(OSError, match="refused"):
        runpy.run_path(program)


@pytest.fixture
def graph_server(monkeypatch):
    """Function that returns a client of graph_server.py for a folder."""

    def client(folder, *arguments):
        apps = []
        monkeypatch.setattr("uvicorn.run", lambda app, **settings: apps.append(app))
        monkeypatch.setattr(sys, "argv", ["graph_server.py", str(folder), *arguments])
        runpy.run_path(str(FOLDER / "graph_server.py"), run_name="__main__")
        return TestClient(apps[0])

    return client


def exported(tmp_path, model):
    return keras_bert.export(model, tmp_path / "model", format="onnx")


def test_graph_server(tmp_path, graph_server):
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["bad", "good"])
    client = graph_server(exported(tmp_path, model))
    assert client.get("/health").text == "ok"
    path = "/v1/models/model:predict"
    answer = client.post(path, json={"instances": ["so good", "한국어"]}).json()
    expected = keras_bert.pipeline(model)(["so good", "한국어"])
    assert [row["label"] for row in answer["predictions"]] == [row["label"] for row in expected]
    assert client.post(path, json={"instances": [{"text": "so good"}]}).status_code == 200
    for body in ({}, {"instances": "a"}, {"instances": [1]}, {"instances": [{"x": "a"}]}):
        assert client.post(path, json=body).status_code == 400
    assert client.post(path, content=b"{").status_code == 400


def test_graph_server_of_pairs(tmp_path, graph_server):
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["a", "b"], pairs=True)
    row = {"text": "good", "text_pair": "so bad"}
    client = graph_server(exported(tmp_path, model), "--example", json.dumps(row))
    assert client.get("/health").text == "ok"
    answer = client.post("/v1/models/model:predict", json={"instances": [row]}).json()
    assert answer["predictions"][0]["label"] in ("a", "b")


@pytest.mark.parametrize("client", ["rest_client.py", "grpc_client.py"])
def test_clients_know_the_inputs_of_all_tasks(client):
    known = runpy.run_path(str(FOLDER / client))["INPUTS"]
    assert {task.input_names for task in registry.TASKS} <= set(known)


def test_choices():
    """Every text gets all choices."""
    names, texts, choices = ("text", "choices"), ["a", "b"], ["c", "d", "e"]
    rows = runpy.run_path(str(FOLDER / "rest_client.py"))["rows"]
    assert rows(names, texts, choices) == [
        {"text": "a", "choices": choices},
        {"text": "b", "choices": choices},
    ]
    columns = runpy.run_path(str(FOLDER / "grpc_client.py"))["columns"]
    assert columns(names, texts, choices) == {"text": texts, "choices": [choices, choices]}
    for function in (rows, columns):
        with pytest.raises(SystemExit, match="takes text and choices; received 2 texts, 0"):
            function(names, texts, [])


@pytest.mark.slow
@pytest.mark.parametrize("client", ["rest", "grpc"])
def test_versions(ask, client):
    assert ask(client, "--model", "classification", "--version", "1", "a")
    with pytest.raises(SystemExit, match="(?i)not.found.*classification"):
        ask(client, "--model", "classification", "--version", "7", "a")


def test_no_server(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rest_client.py", "--url", "http://127.0.0.1:1", "a"])
    with pytest.raises(SystemExit, match="no answer: .*refused"):
        runpy.run_path(str(FOLDER / "rest_client.py"), run_name="__main__")
    monkeypatch.setattr(sys, "argv", ["grpc_client.py", "--address", "127.0.0.1:1", "a"])
    with pytest.raises(SystemExit, match="UNAVAILABLE"):
        runpy.run_path(str(FOLDER / "grpc_client.py"), run_name="__main__")


@pytest.fixture
def proxy(rest, tmp_path):
    """Port of an nginx with the configuration of the example, in front of the local server."""
    if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (FOLDER / "nginx.conf").read_text()
    for ours, there in (
        ("/tmp/", f"{tmp_path}/"),
        ("/etc/nginx/users", f"{tmp_path}/users"),
        ("server serving:8501", f"server {rest[1].removeprefix('http://').strip('/')}"),
        ("listen 8080", f"listen 127.0.0.1:{port}"),
    ):
        assert ours in text
        text = text.replace(ours, there)
    (tmp_path / "nginx.conf").write_text(text)
    (tmp_path / "users").write_text("me:{PLAIN}secret\n")
    (tmp_path / "users").chmod(0o644)
    for folder in (tmp_path, *tmp_path.parents[:3]):  # nginx drops the rights of root
        folder.chmod(folder.stat().st_mode | 0o711)
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    command = ["nginx", "-e", "stderr", "-c", str(tmp_path / "nginx.conf"), "-g", "daemon off;"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def send(port, path, body=None, user="me:secret", method=None):
    """Send a request to the proxy; return its status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if user else {}
    try:
        connection.request(method or ("POST" if body else "GET"), path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.slow
def test_proxy_forwards_only_predictions_and_status(proxy):
    predict = "/v1/models/classification:predict"
    body = json.dumps({"instances": ["so good"]})
    status, answer = send(proxy, predict, body)
    assert status == 200 and b'"label"' in answer
    assert send(proxy, "/v1/models/classification/versions/1:predict", body)[0] == 200
    assert send(proxy, "/v1/models/classification")[0] == 200
    for user in (None, "me:guess", "you:secret"):
        assert send(proxy, predict, body, user)[0] == 401
    for path in ("/", "/v1/models/classification/metadata", "/metrics"):
        assert send(proxy, path)[0] == 404
    assert send(proxy, predict, method="DELETE")[0] == 403
    assert send(proxy, predict, b"[" * 70_000)[0] == 413
    assert send(proxy, predict, b"[" * 60_000)[0] == 400  # refused by the server


@pytest.mark.slow
def test_proxy_limits_connections_requests_and_time(proxy):
    with contextlib.ExitStack() as stack:
        # A request without its body keeps a connection open for 5 seconds.
        head = (
            b"POST /v1/models/classification:predict HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n"
        )
        head += b"authorization: Basic " + base64.b64encode(b"me:secret") + b"\r\n\r\n"
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", proxy)))
                for _ in range(16)]  # fmt: skip
        for connection in connections:
            connection.settimeout(30)
            connection.sendall(head)
        time.sleep(0.5)
        assert send(proxy, "/v1/models/classification")[0] == 429
        start = time.monotonic()
        for connection in connections:
            with contextlib.suppress(ConnectionError):
                assert b" 200 " not in connection.recv(100)
        assert time.monotonic() - start < 10
    statuses = [send(proxy, "/v1/models/classification")[0] for _ in range(300)]
    assert statuses.count(200) >= 100 and 429 in statuses
