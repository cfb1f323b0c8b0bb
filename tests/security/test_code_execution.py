"""Attack: a model that runs code when it is loaded, called, converted or served."""

import re
import shutil
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert import __main__ as command_line
from keras_bert.cli import options, serving
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.server import models
from tests.security.rewriting import edit_config, layer_of

NEEDS_TRUST = r"HubLayer.*trusted=True.*--trusted"


class WritesAtLoad(tf.Module):
    """A SavedModel with a resource whose initializer writes a file when the model is loaded."""

    def __init__(self, target):
        super().__init__()
        self.asset = WritingResource(target)
        self.kernel = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, x):
        with tf.control_dependencies([self.asset.resource_handle]):
            return x * self.kernel


class WritingResource(tf.saved_model.experimental.TrackableResource):
    """A resource whose initializer writes a file."""

    def __init__(self, target):
        super().__init__()
        self.target = str(target)

    def _create_resource(self):
        return tf.raw_ops.AnonymousHashTable(key_dtype=tf.string, value_dtype=tf.int64)

    def _initialize(self):
        tf.io.write_file(self.target, "written")


@pytest.fixture
def target(tmp_path):
    """A file that exists only if the attack ran."""
    return tmp_path / "written.txt"


@pytest.fixture
def hostile(tmp_path, target):
    """The folder of a SavedModel that writes `target` when it is loaded."""
    tf.saved_model.save(WritesAtLoad(target), str(tmp_path / "hostile"))
    target.unlink(missing_ok=True)
    return tmp_path / "hostile"


@pytest.fixture
def double(tmp_path):
    """The folder of a SavedModel that doubles `x`, as a layer and on a server."""
    module = tf.Module()
    module.factor = tf.Variable(2.0)
    (tmp_path / "a.txt").write_text("an asset")
    module.asset = tf.saved_model.Asset(str(tmp_path / "a.txt"))
    specs = [tf.TensorSpec([None, 2], name="x")]
    call = tf.function(lambda x: x * module.factor, input_signature=specs, autograph=False)
    module.__call__ = call
    signature = tf.function(lambda x: {"y": call(x)}, input_signature=specs, autograph=False)
    tf.saved_model.save(module, str(tmp_path / "double"), signatures=signature)
    return tmp_path / "double"


@pytest.fixture
def model_file(hostile, tmp_path, target):
    """A `.keras` file that contains the hostile SavedModel."""
    x = keras.Input((2,))
    keras.Model(x, HubLayer(hostile, trusted=True)(x)).save(tmp_path / "model.keras")
    assert target.read_text() == "written"  # the attack works if the model is trusted
    target.unlink()
    return tmp_path / "model.keras"


def test_untrusted_saved_model_in_a_model_does_not_run(model_file, target):
    for load in (keras_bert.load, keras.saving.load_model):
        with pytest.raises(ValueError, match=NEEDS_TRUST):
            load(model_file)
        assert not target.exists()


def test_untrusted_code_in_a_folder_or_an_archive_does_not_run(
    model_file, target, tmp_path, monkeypatch
):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "folder").mkdir()
    model_file.rename(tmp_path / "folder" / "model.keras")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.write(tmp_path / "folder" / "model.keras", "model.keras")
    for name in ("folder", "archive.zip"):
        with pytest.raises(ValueError, match=NEEDS_TRUST):
            keras_bert.load(tmp_path / name)
        with pytest.raises(ValueError, match=NEEDS_TRUST):
            keras_bert.convert(tmp_path / name, tmp_path / "out", format="huggingface")
    assert not target.exists()


@pytest.mark.parametrize(
    "command",
    ["info", "convert", "export", "serve", "finetune", "evaluate", "predict", "embed", "fill"],
)
def test_commands_do_not_run_untrusted_code(model_file, target, tmp_path, command, capsys):
    train = tmp_path / "train.tsv"
    train.write_text("text\tlabel\na\tb\nc\td\n")
    arguments = {
        "info": [model_file],
        "convert": [model_file, tmp_path / "out", "--to", "huggingface"],
        "export": [model_file, tmp_path / "out"],
        "serve": [model_file, "--port", "0"],
        "finetune": ["--model", model_file, "--train", train, "--output", tmp_path / "out"],
        "evaluate": [model_file, "--input", train],
        "predict": [model_file, "a text"],
        "embed": [model_file, "--input", train, "--output", tmp_path / "out.npy"],
        "fill": [model_file, "a [MASK]"],
    }[command]
    assert command_line.main([command, *map(str, arguments)]) == 1
    assert re.search(NEEDS_TRUST, capsys.readouterr().err)
    assert not target.exists()


def test_trusted_code_runs(model_file, target):
    model = keras_bert.load(model_file, trusted=True)
    assert target.exists()
    np.testing.assert_array_equal(model(np.ones((1, 2), "float32")), [[2.0, 2.0]])


REFUSED = "a SavedModel is a program, .* trusted=True, or --trusted"


@pytest.fixture
def exported(double, tmp_path):
    """A folder with the layout of exports: of a head, and of an encoder with its preprocessor."""
    folder = tmp_path / "exported"
    for name in ("head/1", "pair/encoder/1", "pair/preprocess/1"):
        shutil.copytree(double, folder / name)
    (folder / "head/models.config").touch()
    return folder


RUN = {
    "HubLayer(encoder)": lambda folder: HubLayer(folder / "pair/encoder/1"),
    "HubLayer(preprocessor)": lambda folder: HubLayer(folder / "pair/preprocess/1"),
    "the server's models": lambda folder: models.load(folder / "head/1"),
    "serve": lambda folder: serve(folder / "head"),
    "serve, a version": lambda folder: serve(folder / "head/1"),
    "serve, several models": lambda folder: serve(folder / "pair"),
}


def serve(folder):
    serving.serve(options.Serve(model=str(folder), port=0))


@pytest.mark.parametrize("run", RUN.values(), ids=RUN)
def test_a_saved_model_needs_trust(exported, run, monkeypatch):
    calls = []
    monkeypatch.setattr(tf.saved_model, "load", lambda *args: calls.append(args))
    monkeypatch.setattr(shutil, "copyfile", lambda *args: calls.append(args))
    with pytest.raises(ValueError, match=f"^{re.escape(str(exported))}.*: {REFUSED}"):
        run(exported)
    assert calls == []


READ = {
    "load": keras_bert.load,
    "pipeline": keras_bert.pipeline,
    "convert": lambda folder: keras_bert.convert(folder, folder / "out", format="huggingface"),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
@pytest.mark.parametrize("name", ["head/1", "head", "pair/encoder/1", "pair"])
def test_other_functions_do_not_run_a_saved_model(exported, read, name, monkeypatch):
    monkeypatch.setattr(tf.saved_model, "load", None)
    with pytest.raises(ValueError, match="is an export, .*trusted"):
        read(exported / name)


def test_a_hostile_saved_model_does_not_run_without_trust(hostile, target, capsys):
    for load in (HubLayer, models.load):
        with pytest.raises(ValueError, match=f"^{re.escape(str(hostile))}: {REFUSED}"):
            load(hostile)
    assert command_line.main(["serve", str(hostile), "--port", "0"]) == 1
    assert re.search(f"{re.escape(str(hostile))}: {REFUSED}", capsys.readouterr().err)
    assert not target.exists()


def test_only_what_tensorflow_loads_is_saved_in_a_model(double, tmp_path):
    """What lies beside the model does not end up in the file that the user saves."""
    (double / "assets.extra").mkdir()
    (double / "assets.extra" / "key").write_text("secret")
    (double / "notes.txt").write_text("secret")
    HubLayer(double, trusted=True).save_assets(tmp_path / "saved")
    names = {path.name for path in tmp_path.glob("saved/saved_model/*")}
    assert names == {"saved_model.pb", "fingerprint.pb", "variables", "assets"}


def test_links_in_a_trusted_saved_model_are_followed(double, tmp_path):
    """The Hugging Face Hub's cache consists of links."""
    linked = tmp_path / "linked"
    (linked / "variables").mkdir(parents=True)
    for file in ("saved_model.pb", *(f"variables/{path.name}" for path in variables(double))):
        (linked / file).symlink_to(double / file)
    HubLayer(linked, trusted=True).save_assets(tmp_path / "saved")
    assert not [path for path in tmp_path.glob("saved/**/*") if path.is_symlink()]
    assert models.load(linked, trusted=True).signatures


def variables(folder):
    return (folder / "variables").iterdir()


@pytest.mark.parametrize("trusted", [False, True])
def test_a_path_in_a_config_is_rejected(model_file, hostile, target, trusted):
    def change(config):
        layer_of(config, "HubLayer")["config"]["path"] = str(hostile)

    edit_config(model_file, change)
    with pytest.raises(ValueError, match="must not hold 'path'|was not loaded"):
        keras_bert.load(model_file, trusted=trusted)
    config = {"path": str(hostile), "trusted": True}
    with pytest.raises(ValueError, match="must not hold 'path'"):
        HubLayer.from_config(config)
    assert not target.exists()


def test_a_vocabulary_path_in_a_config_is_rejected(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\npassword\n")
    config = {"name": "preprocessor", "vocabulary": str(secret)}
    with pytest.raises(ValueError, match="vocabulary"):
        keras_bert.Preprocessor.from_config(config)
    text = keras.Input((), dtype="string")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
    keras.Model(text, keras_bert.Preprocessor(pieces)(text)).save(tmp_path / "model.keras")

    def change(config):
        layer_of(config, "Preprocessor")["config"]["vocabulary"] = str(secret)

    edit_config(tmp_path / "model.keras", change)
    for load in (keras_bert.load, keras.saving.load_model):
        with pytest.raises((ValueError, TypeError), match="vocabulary"):
            load(tmp_path / "model.keras")


def test_layers_that_run_code_are_rejected(tmp_path):
    x = keras.Input((2,))
    keras.Model(x, keras.layers.Lambda(lambda x: x + 1)(x)).save(tmp_path / "lambda.keras")
    with pytest.raises(ValueError, match=r"contains keras\.layers\.Lambda.*trusted=True"):
        keras_bert.load(tmp_path / "lambda.keras")
    keras_bert.load(tmp_path / "lambda.keras", trusted=True)

    def torch_module(config):
        layer_of(config, "Lambda").update(
            module="keras.layers", class_name="TorchModuleWrapper", config={"module": "AAAA"}
        )

    edit_config(tmp_path / "lambda.keras", torch_module)
    for trusted, match in ((False, "was not loaded"), (True, "could not be loaded")):
        with pytest.raises(ValueError, match=match):
            keras_bert.load(tmp_path / "lambda.keras", trusted=trusted)


@keras.saving.register_keras_serializable(package="tests")
class Doubled(keras.layers.Layer):
    """A layer that is not listed."""

    def call(self, x):
        return 2 * x


def test_a_layer_of_ones_own_needs_trust(tmp_path):
    x = keras.Input((2,))
    file = tmp_path / "model.keras"
    line = re.escape(f"keras_bert.load({str(file)!r}, trusted=True)")
    with pytest.warns(UserWarning, match=f"contains .*Doubled.*{line}"):
        keras_bert.save(keras.Model(x, Doubled()(x)), file)
    with pytest.raises(ValueError, match=r"contains .*Doubled.*trusted=True"):
        keras_bert.load(file)
    assert keras_bert.load(file, trusted=True)(np.ones((1, 2)))[0, 0] == 2
