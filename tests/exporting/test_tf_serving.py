"""Tests of the files for TensorFlow Serving, parsed with its protocol buffers."""

import json
import pathlib
import shlex
import shutil
import subprocess

import pytest
import tensorflow as tf
import yaml
from google.protobuf import text_format

import keras_bert
from keras_bert.exporting import tf_serving
from keras_bert.server import models
from keras_bert.tasks import inference_graph
from tests import served, tiny
from tests.parameters import slow
from tests.server.test_app import serving


def requests(version):
    """The warm-up requests of a version: list of (PredictRequest, inputs as arrays)."""
    log = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    found = []
    for record in tf.data.TFRecordDataset(str(version / tf_serving.WARMUP_FILE)):
        request = log.PredictionLog.FromString(record.numpy()).predict_log.request
        found.append((request, {k: tf.make_ndarray(v) for k, v in request.inputs.items()}))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_warmup_requests_are_answered(tmp_path, pairs):
    model = keras_bert.heads.classifier(tiny.encoder(), 2, pairs=pairs)
    version = keras_bert.export(model, tmp_path / "reviews")
    signatures = tf.saved_model.load(str(version)).signatures
    found = requests(version)
    assert len(found) == 2
    for request, inputs in found:
        assert sorted(inputs) == (["text", "text_pair"] if pairs else ["text"])
        signature = signatures[request.model_spec.signature_name]
        answer = signature(**{key: tf.constant(value) for key, value in inputs.items()})
        assert answer["probabilities"].shape == (1, 2)
    # Over 127 bytes: the encoded length takes two bytes.
    assert len(found[1][1]["text"][0]) > 128


def text_input(*names):
    return [tf.TensorSpec([None], tf.string, name=name) for name in names]


def compose(folder):
    """The service of a Compose file, after Compose replaced `$$` by `$`."""
    text = (folder / tf_serving.COMPOSE_FILE).read_text(encoding="utf-8")
    service = yaml.safe_load(text)["services"]["serving"]

    def fill(value):
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item) for item in value]
        return value.replace("$$", "$") if isinstance(value, str) else value

    return fill(service)


def models_config(text):
    """The models of a --model_config_file, parsed as a `ModelServerConfig`."""
    module = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    return text_format.Parse(text, module.ModelServerConfig()).model_config_list.config


# Flags of tensorflow_model_server, from its main.cc.
FLAGS = {
    "model_config_file",
    "model_config_file_poll_wait_seconds",
    "allow_version_labels_for_unavailable_models",
    "tensorflow_intra_op_parallelism",
    "enable_batching",
    "batching_parameters_file",
}


def check_compose(service, folder, root):
    """Check flags, files, ports and limits of a service; return its flags."""
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in service["command"])
    assert set(flags) <= FLAGS
    [mount] = [mount for mount in service["volumes"] if mount["target"] == root]
    assert mount["type"] == "bind" and mount["source"] == "." and mount["read_only"] is True
    for flag in {"model_config_file", "batching_parameters_file"} & set(flags):
        inside = pathlib.PurePosixPath(flags[flag])
        assert (folder / inside.relative_to(root)).is_file()
    assert service["image"].startswith("tensorflow/serving:")
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["deploy"]["resources"]["limits"]["memory"].endswith("g}")
    return flags


NAMES = ["reviews", "한국 리뷰", 'it\'s "$HOME" ${A}', "a:b\\n%s#c", "-x", "a\nb", "null", "1"]


@pytest.mark.parametrize("name", NAMES)
def test_settings_for_unusual_names(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    tf_serving.write_settings(folder, text_input("text"))
    service = compose(folder)
    flags = check_compose(service, folder, f"/models/{name}")
    assert "enable_batching" in flags
    [model] = models_config((folder / tf_serving.MODELS_FILE).read_text(encoding="utf-8"))
    assert (model.name, model.base_path) == (name, f"/models/{name}")
    assert model.model_platform == "tensorflow"


def test_rows_of_different_shapes_are_not_combined(tmp_path):
    """The server would refuse such batches with FAILED_PRECONDITION."""
    choices = tf.TensorSpec([None, None], tf.string, name="choices")
    tf_serving.write_settings(tmp_path, [*text_input("text"), choices])
    assert not [flag for flag in compose(tmp_path)["command"] if "batching" in flag]


def test_curl_command(tmp_path):
    inputs = [
        *text_input("text"),
        tf.TensorSpec([None, None], tf.string, name="choices"),
        tf.TensorSpec([None, 2], name="stars"),
    ]
    command = shlex.split(tf_serving.curl("it's 좋음", inputs).replace("\\\n", ""))
    body = json.loads(command[2])
    row = {"text": "your text", "choices": ["your text"], "stars": [0, 0]}
    assert body == {"instances": [row]}
    assert command[3] == "http://localhost:8501/v1/models/it%27s%20%EC%A2%8B%EC%9D%8C:predict"
    assert '{"instances": ["your text"]}' in tf_serving.curl("a", text_input("text"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_health_check(tmp_path):
    name = "it's 좋음"
    served.times(tmp_path / name / "1", 2.0)
    tf_serving.write_settings(tmp_path / name, text_input("text"))
    kind, *command = compose(tmp_path / name)["healthcheck"]["test"]
    assert kind == "CMD"
    [model] = models.find(tmp_path / name)
    with serving([model]) as port:
        command[-1] = command[-1].replace("/8501", f"/{port}")
        assert subprocess.run(command, timeout=30).returncode == 0
        other = [*command[:-1], command[-1].replace("/it%27s", "/other")]
        assert subprocess.run(other, timeout=30).returncode != 0
    assert subprocess.run(command, timeout=30, capture_output=True).returncode != 0


def test_existing_settings_are_kept_and_links_are_replaced(tmp_path):
    """A link in a folder of somebody else would create a file elsewhere."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / tf_serving.COMPOSE_FILE).write_text("mine")
    (folder / tf_serving.BATCHING_FILE).symlink_to(tmp_path / "elsewhere")
    tf_serving.write_settings(folder, text_input("text", "text_pair"))
    assert (folder / tf_serving.COMPOSE_FILE).read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()
    assert (folder / tf_serving.BATCHING_FILE).read_text()


@pytest.mark.parametrize("constants", [pytest.param(10**9, marks=pytest.mark.slow), 0])
@pytest.mark.parametrize(("precision", "size"), [slow("float32", 4), ("bfloat16", 2)])
def test_size_of_an_export(tmp_path, precision, size, constants, monkeypatch):
    """The word embeddings, which a masked LM uses twice, are stored once."""
    monkeypatch.setattr(inference_graph, "_MAX_CONSTANTS", constants)
    encoder = tiny.encoder(hidden_size=512, vocab_size=8000, num_hidden_layers=1)
    model = keras_bert.heads.masked_lm(encoder)
    version = keras_bert.export(model, tmp_path, precision=precision)
    total = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    weights = size * model.count_params()
    assert weights <= total <= 1.03 * weights + 4e6
