"""The clients of examples/serving: by HTTP and by gRPC, against what a server answers.

No TensorFlow Serving runs here. The local server speaks its REST; for gRPC there is a server in
this process, made of TensorFlow Serving's own messages on top of the loaded SavedModels.
"""

import ast
import concurrent.futures
import functools
import json
import re
import runpy
import sys

import grpc
import pytest
import tensorflow as tf
import yaml

from keras_bert.serving import models, production
from tests import served
from tests.conftest import ROOT
from tests.test_serving_production import batching, check_compose, models_config
from tests.test_serving_server import serving

pytest.importorskip("tensorflow_serving")

from tensorflow_serving.apis import (  # noqa: E402
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

FOLDER = ROOT / "examples" / "serving"
HEADS = ("classifier", "tagger", "reader")


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata on SavedModels, as TensorFlow Serving has them."""

    def __init__(self, folder):
        self.paths = {path.parent.name: str(path) for path in folder.glob("*/1")}
        self.load = functools.cache(tf.saved_model.load)
        self.requests = []

    def _find(self, spec, context):
        asked = spec.WhichOneof("version_choice")
        if spec.name not in self.paths or asked == "version" and spec.version.value != 1:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found: {spec.name}")
        if asked == "version_label" and spec.version_label != "stable":
            message = f"Unrecognized servable version label: {spec.version_label}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
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

    def distance(text, text_pair):  # one output, as a regressor of pairs
        return {
            "score": tf.cast(tf.strings.length(text) - tf.strings.length(text_pair), tf.float32)
        }

    call = served.function(distance, "text", "text_pair")
    served.save(tf.Module(), folder / "pairs" / "1", call)
    return folder


@pytest.fixture(scope="module")
def rest(folder):
    """The arguments that lead rest_client.py to a server."""
    with serving(models.find(folder), patience=30) as port:
        yield ["--url", f"http://127.0.0.1:{port}/"]


@pytest.fixture(scope="module")
def service(folder):
    return Service(folder)


@pytest.fixture(scope="module")
def channel(service):
    """The same for grpc_client.py."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield ["--address", f"127.0.0.1:{port}"]
    server.stop(None).wait()


@pytest.fixture(params=["rest", "grpc"])
def ask(request, rest, channel, capsys, monkeypatch):
    """Runs a client; gives its lines."""
    where = {"rest": rest, "grpc": channel}[request.param]

    def run(*arguments):
        file = FOLDER / f"{request.param}_client.py"
        monkeypatch.setattr(sys, "argv", [file.name, *where, *arguments])
        runpy.run_path(str(file), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def values(lines):
    """Name to value of an answer's lines."""
    return dict(line.strip().split(None, 1) for line in lines)


def test_classifier(ask):
    texts = ["so good", "이 영화 정말 좋아요", ""]
    lines = ask("--model", "classifier", *texts)
    assert lines[::4] == texts
    for number in range(3):
        answer = values(lines[4 * number + 1 : 4 * number + 4])
        assert sorted(answer) == ["label", "probabilities", "score"]
        assert answer["label"].strip('"') in ("bad", "good", "좋음")
        assert len(json.loads(answer["probabilities"])) == 3
        assert 0.3 < float(answer["score"]) <= 1


def test_both_clients_say_the_same(folder, rest, channel, capsys, monkeypatch):
    answers = []
    for name, where in (("rest", rest), ("grpc", channel)):
        arguments = [f"{name}_client.py", *where, "--model", "tagger", "한국어 film, so bad", "a"]
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(str(FOLDER / f"{name}_client.py"), run_name="__main__")
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert re.search(r"^  한국어 +[BI]-\w+ +0\.\d\d  bytes 0 to 9$", answers[0], re.M)
    assert re.search(r"^  film +[BI]-\w+ +0\.\d\d  bytes 10 to 14$", answers[0], re.M)
    assert answers[0].splitlines()[-2] == "a" and len(answers[0].splitlines()) == 8


def test_reader_with_one_context_for_many_questions(ask):
    context = "한국어 film so good"
    lines = ask("--model", "reader", "is this bad", "so", "--second", context)
    assert lines[::5] == ["is this bad", "so"]
    answer = values(lines[1:5])
    span = context.encode()[int(answer["start"]) : int(answer["end"])].decode()
    assert answer["answer"].strip('"') == span


def test_pairs(ask):
    [text, line] = ask("--model", "pairs", "good", "--second", "so bad")
    assert text == "good" and line.split()[-1] == "-2.0"
    lines = ask("--model", "pairs", "a", "abc", "--second", "c", "--second", "d")
    assert [line.split()[-1] for line in lines] == ["a", "0.0", "abc", "2.0"]
    lines = ask("--model", "pairs", "a", "b", "--second", "")  # one for all
    assert [line.split()[-1] for line in lines[1::2]] == ["1.0", "1.0"]


def test_choices():
    """All of them go with each text."""
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


def test_versions(ask):
    assert ask("--model", "classifier", "--version", "1", "a")
    with pytest.raises(SystemExit, match="(?i)not.found.*classifier"):
        ask("--model", "classifier", "--version", "7", "a")
    with pytest.raises(SystemExit, match="version label: canary"):
        ask("--model", "classifier", "--label", "canary", "a")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "classifier", "a", "--second", "b"],
        ["--model", "pairs", "a"],
        ["--model", "pairs", "a", "b", "c", "--second", "d", "--second", "e"],
    ],
)
def test_texts_that_the_model_does_not_take(ask, arguments):
    with pytest.raises(SystemExit, match="the model takes text"):
        ask(*arguments)


def test_no_server(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rest_client.py", "--url", "http://127.0.0.1:1", "a"])
    with pytest.raises(SystemExit, match="no answer: .*refused"):
        runpy.run_path(str(FOLDER / "rest_client.py"), run_name="__main__")
    monkeypatch.setattr(sys, "argv", ["grpc_client.py", "--address", "127.0.0.1:1", "a"])
    with pytest.raises(SystemExit, match="UNAVAILABLE"):
        runpy.run_path(str(FOLDER / "grpc_client.py"), run_name="__main__")


def test_a_label_reaches_the_server_in_the_message(service, channel, monkeypatch, capsys):
    arguments = ["grpc_client.py", *channel, "--model", "classifier", "--label", "stable", "a"]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(FOLDER / "grpc_client.py"), run_name="__main__")
    spec = service.requests[-1].model_spec
    assert (spec.name, spec.version_label) == ("classifier", "stable")
    assert spec.signature_name == "serving_default"


def test_warmup_requests_are_answered_by_the_service(folder, channel):
    """What the server sends itself when it loads a version, through the same channel."""
    from tests.test_serving_production import requests

    with grpc.insecure_channel(channel[1]) as connection:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(connection)
        for name in HEADS:
            for request, inputs in requests(folder / name / "1"):
                request.model_spec.name = name
                response = stub.Predict(request, timeout=60)
                rows = {tf.make_ndarray(value).shape[0] for value in response.outputs.values()}
                assert rows == {1} == {array.shape[0] for array in inputs.values()}


def test_the_compose_file_of_several_models():
    service = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["serving"]
    check_compose(service, FOLDER, "/config")
    [folder] = [mount for mount in service["volumes"] if mount["target"] == "/models"]
    source = re.fullmatch(r"\$\{MODELS:-(.+)\}", folder["source"])[1]
    assert (FOLDER / source).resolve() == ROOT / "saved_models"
    found = models_config((FOLDER / "models.config").read_text())
    assert [model.base_path for model in found] == [f"/models/{model.name}" for model in found]
    # Compose puts MODEL in; without it, the first of the list.
    check = service["healthcheck"]["test"][-1]
    assert f"/v1/models/${{MODEL:-{found[0].name}}} " in check
    batching((FOLDER / "batching.config").read_text())


def test_one_server_has_the_settings_of_the_other(tmp_path):
    """What the folder of a model and the folder of many say is the same, but for the names."""
    production.write_settings(tmp_path, [tf.TensorSpec([None], tf.string, name="text")])

    def plain(folder, file):
        lines = (folder / file).read_text().splitlines()
        return [line for line in lines if not line.startswith("#")]

    assert plain(tmp_path, "batching.config") == plain(FOLDER, "batching.config")
    ours, theirs = (
        yaml.safe_load((folder / "compose.yaml").read_text().replace("$$", "$"))["services"][
            "serving"
        ]
        for folder in (FOLDER, tmp_path)
    )
    for service in (ours, theirs):
        del service["volumes"]
        service["command"] = [flag.partition("=/")[0] for flag in service["command"]]
        service["healthcheck"]["test"][-1] = re.sub(
            "/v1/models/[^ ]+", "", service["healthcheck"]["test"][-1]
        )
    assert ours == theirs


def test_headers_say_command_time_and_what_to_expect():
    for file in sorted(FOLDER.glob("*.py")):
        header = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        assert re.search(rf"^Command:   python examples/serving/{file.name}", header, re.M)
        assert re.search(r"^Time:      .+ 2 CPU cores", header, re.M)
        assert re.search(r"^Expected:  .*\d", header, re.M)


def test_the_page_names_files_and_flags_that_exist():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (FOLDER / target).exists(), target
    for body in re.findall(r"curl .*?-d '(.+?)'", page, re.S):
        assert isinstance(json.loads(body), dict)
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.S)
    for _, text in (block for block in blocks if block[0] == "json"):
        json.loads(text)
    assert [models_config(text) for kind, text in blocks if kind == "proto"]


def test_python_of_the_clients_needs_no_keras():
    for file in FOLDER.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        allowed = {"grpc", "tensorflow"} if file.stem == "grpc_client" else set()
        assert names - set(sys.stdlib_module_names) <= allowed, file.name
