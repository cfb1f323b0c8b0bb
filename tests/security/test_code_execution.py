"""Attack: a model that runs code when it is loaded, called, converted or served."""

import os
import re
import shutil
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert import __main__ as command_line
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.hub import own_files
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
def own(double):
    """The folder of a SavedModel that this machine exported."""
    own_files.record(double)
    return double


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


NOT_OWN = r"a SavedModel is a program, .* trusted=True or --trusted .* or export the model"


def load_as_layer(folder):
    """The SavedModel's answer for a row of ones, as a layer."""
    return np.asarray(HubLayer(folder)(np.ones((1, 2), "float32")))


def serve(folder):
    """The SavedModel's answer for a row of ones, from the server."""
    return models.load(folder, 1).signature("serving_default")({"x": np.ones((1, 2), "float32")})


RUN = [load_as_layer, serve]


@pytest.mark.parametrize("run", RUN)
def test_a_saved_model_does_not_run_without_trust(hostile, target, run):
    with pytest.raises(ValueError, match=f"^{re.escape(str(hostile))}: {NOT_OWN}"):
        run(hostile)
    assert not target.exists()


def test_serve_refuses_a_saved_model_without_trust(hostile, target, capsys):
    hostile.rename(hostile.with_name("1"))
    folder = str(hostile.with_name("1"))
    assert command_line.main(["serve", folder, "--port", "0"]) == 1
    assert re.search(f"{re.escape(folder)}: {NOT_OWN}", capsys.readouterr().err)
    assert not target.exists()


@pytest.mark.parametrize("run", RUN)
def test_an_export_of_this_machine_needs_no_trust(own, run):
    assert run(own) is not None
    moved = own.rename(own.with_name("moved"))
    assert run(moved) is not None


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("file", ["saved_model.pb", "variables/variables.index", "assets/a.txt"])
def test_a_changed_export_needs_trust(own, run, file):
    content = (own / file).read_bytes()
    stat = os.stat(own / file)
    (own / file).write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(own / file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ValueError, match=NOT_OWN):
        run(own)
    (own / file).write_bytes(content)
    (own / "assets" / "new.txt").write_text("new")
    with pytest.raises(ValueError, match=NOT_OWN):
        run(own)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "file", ["debug/saved_model_debug_info.pb", "saved_model.pbtxt", "saved_model.cpb"]
)
def test_other_files_of_tensorflow_are_not_read(own, run, file):
    """The hash does not include them, so TensorFlow must not see them."""
    (own / file).parent.mkdir(exist_ok=True)
    (own / file).write_bytes(b"broken")
    assert run(own) is not None


@pytest.mark.parametrize("run", RUN)
def test_tensorflow_loads_the_bytes_that_were_checked(own, hostile, target, run, monkeypatch):
    """Whoever can write to the folder exchanges the files after the check."""
    is_own = own_files.is_own

    def exchange_after(folder):
        answer = is_own(folder)
        shutil.rmtree(own)
        shutil.copytree(hostile, own)
        return answer

    monkeypatch.setattr(own_files, "is_own", exchange_after)
    assert run(own) is not None
    assert not target.exists()


@pytest.mark.parametrize("run", RUN)
def test_a_large_saved_model_of_others_is_not_read(double, run, monkeypatch):
    [data] = (double / "variables").glob("*.data-*")
    os.truncate(data, 2**40)  # a sparse file; to hash or to copy it would take hours

    def copy(*paths):
        raise AssertionError(paths)

    monkeypatch.setattr(shutil, "copyfile", copy)
    with pytest.raises(ValueError, match=NOT_OWN):
        run(double)


def test_a_saved_model_has_a_limited_number_of_files(own):
    (own / "assets" / "many").mkdir()
    for number in range(10_000):
        (own / "assets" / "many" / str(number)).touch()
    for run in RUN:
        with pytest.raises(ValueError, match="must have at most 10000 files"):
            run(own)


def test_a_pipe_in_a_saved_model_is_refused(own):
    os.mkfifo(own / "assets" / "pipe")
    for run in RUN:
        with pytest.raises(ValueError, match="pipe is not a regular file"):
            run(own)


@pytest.mark.parametrize("where", ["assets/x", "assets.extra/x", "variables/x", "assets"])
def test_links_in_a_saved_model_are_not_followed(own, tmp_path, where):
    """What a link names must not end up in the file that the user saves."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    link = own / where
    if where == "assets":
        shutil.rmtree(link)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(secret)
    if where.startswith("assets.extra"):  # which is not copied
        HubLayer(own).save_assets(tmp_path / "saved")
        assert not list(tmp_path.glob("saved/**/key"))
        return
    for run in RUN:
        with pytest.raises(ValueError, match="is a link"):
            run(own)


def test_links_in_a_trusted_saved_model_are_followed(double, tmp_path):
    """The Hugging Face Hub's cache consists of links."""
    linked = tmp_path / "linked"
    (linked / "variables").mkdir(parents=True)
    for file in ("saved_model.pb", *(f"variables/{path.name}" for path in variables(double))):
        (linked / file).symlink_to(double / file)
    HubLayer(linked, trusted=True).save_assets(tmp_path / "saved")
    assert not [path for path in tmp_path.glob("saved/**/*") if path.is_symlink()]
    assert models.load(linked, 1, trusted=True).signatures


def variables(folder):
    return (folder / "variables").iterdir()


def edit_graph(folder, change):
    """Call `change` with the graph of a SavedModel, and write the result."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(saved.meta_graphs[0])
    file.write_bytes(saved.SerializeToString())


def add_function(graph):
    """Add a function with the name of an op. TensorFlow would run it in other models, too."""
    functions = graph.graph_def.library.function
    functions.add().CopyFrom(functions[0])
    functions[-1].signature.name = "MatMul"


def add_inputs(graph):
    graph.graph_def.node.add(op="NoOp").input.extend([""] * 3_200_000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add_function, "with the name of TensorFlow's op MatMul"),
        (add_inputs, "more than .* fields"),
    ],
)
def test_graphs_that_trust_does_not_allow(double, change, message):
    edit_graph(double, change)
    for run in (HubLayer, lambda folder, trusted: models.load(folder, 1, trusted)):
        with pytest.raises(ValueError, match=message):
            run(double, trusted=True)


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
