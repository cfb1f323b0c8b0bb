"""Attack: a model that runs code when it is loaded, called, converted or served."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert import __main__ as command_line
from keras_bert.exporting import allowed_ops
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.server import models
from tests import served
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


COMMANDS = [
    "info",
    "convert",
    "export",
    "serve",
    "finetune",
    "evaluate",
    "predict",
    "embed",
    "fill",
]


@pytest.mark.parametrize("command", COMMANDS)
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


def test_saved_models_with_other_ops_are_rejected(hostile, target):
    for load in (HubLayer, lambda folder: models.load(folder, 1)):
        with pytest.raises(ValueError, match="not allowed in an untrusted model: WriteFile"):
            load(hostile)
        assert not target.exists()


def test_serve_rejects_other_ops(hostile, target, capsys):
    hostile.rename(hostile.with_name("1"))
    folder = str(hostile.with_name("1"))
    assert command_line.main(["serve", folder, "--port", "0"]) == 1
    assert "not allowed in an untrusted model: WriteFile" in capsys.readouterr().err
    assert not target.exists()


def call(function, *specs):
    """Return a module with one function."""
    module = tf.Module()
    module.__call__ = tf.function(function, input_signature=specs, autograph=False)
    return module


STRING = tf.TensorSpec([], tf.string)
ATTACKS = {
    "ReadFile": call(tf.io.read_file, STRING),
    "MatchingFiles": call(tf.io.matching_files, STRING),
    "PrintV2": call(
        lambda x: (tf.raw_ops.PrintV2(input=x, output_stream="file:///tmp/x"), x)[1], STRING
    ),
    "RestoreV2": call(lambda x: tf.raw_ops.RestoreV2(
        prefix=x, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
    ), STRING),
    "SaveV2": call(lambda x: (tf.raw_ops.SaveV2(
        prefix=x, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
    ), x)[1], STRING),
    "TextLineDataset": call(
        lambda x: tf.data.experimental.to_variant(tf.data.TextLineDataset(x)), STRING
    ),
    "EagerPyFunc": call(lambda x: tf.py_function(lambda y: y, [x], tf.string), STRING),
    "PyFunc": call(lambda x: tf.numpy_function(lambda y: y, [x], tf.string), STRING),
    # In a branch, which is a function within a function.
    "WriteFile": call(
        lambda x: tf.cond(
            tf.equal(x, "now"), lambda: (tf.io.write_file("/tmp/x", x), x)[1], lambda: x
        ),
        STRING,
    ),
    "WholeFileReaderV2": call(lambda x: (tf.raw_ops.WholeFileReaderV2(), x)[1], STRING),
}  # fmt: skip


@pytest.mark.parametrize("op", ATTACKS)
def test_errors_name_the_rejected_op(tmp_path, op):
    tf.saved_model.save(ATTACKS[op], str(tmp_path))
    with pytest.raises(ValueError, match=rf"an untrusted model: (\w+, )*{op}[,.]"):
        HubLayer(tmp_path)
    allowed_ops.check(served.times(tmp_path / "plain", 2.0))  # has savers


def test_all_ops_are_checked_in_graphs_of_tensorflow_1(tmp_path):
    from tensorflow.core.protobuf import saved_model_pb2

    served.times(tmp_path, 2.0)
    file = tmp_path / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    saved.meta_graphs[0].ClearField("object_graph_def")
    file.write_bytes(saved.SerializeToString())
    with pytest.raises(ValueError, match="RestoreV2, SaveV2"):
        allowed_ops.check(tmp_path)
    # TensorFlow loads two graphs like a graph of TensorFlow 1, even if they have objects.
    served.times(tmp_path, 2.0)
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    saved.meta_graphs.add().CopyFrom(saved.meta_graphs[0])
    file.write_bytes(saved.SerializeToString())
    with pytest.raises(ValueError, match="RestoreV2, SaveV2"):
        allowed_ops.check(tmp_path)


def edit_graph(folder, change):
    """Call `change` with the graph of a SavedModel, and write the result."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(saved.meta_graphs[0])
    file.write_bytes(saved.SerializeToString())


def test_unlisted_functions_are_checked(hostile, target):
    """TensorFlow creates all functions of the library, even those that no object lists."""
    edit_graph(hostile, lambda graph: graph.object_graph_def.concrete_functions.clear())
    with pytest.raises(ValueError, match="an untrusted model: WriteFile"):
        HubLayer(hostile)

    def no_objects(graph):
        del graph.object_graph_def.nodes[1:]

    edit_graph(hostile, no_objects)
    with pytest.raises(ValueError, match="an untrusted model: WriteFile"):
        allowed_ops.check(hostile)
    assert not target.exists()


@pytest.mark.parametrize("where", ["assets/x", "assets.extra/x", "variables/x", "assets"])
def test_links_in_a_saved_model_are_not_followed(tmp_path, where):
    """What a link names must not end up in the file that the user saves."""
    tf.saved_model.save(call(tf.identity, STRING), str(tmp_path / "model"))
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    link = tmp_path / "model" / where
    shutil.rmtree(link, ignore_errors=True)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(secret)
    if where.startswith("assets.extra"):  # which is not copied
        HubLayer(tmp_path / "model").save_assets(tmp_path / "saved")
        assert not list(tmp_path.glob("saved/**/key"))
    else:
        with pytest.raises(ValueError, match="is a link"):
            HubLayer(tmp_path / "model")


def test_labels_of_a_served_model_are_not_read_through_a_link(tmp_path):
    served.times(tmp_path / "model", 2.0)
    (tmp_path / "secret").write_text("secret\n")
    labels = tmp_path / "model" / "assets" / "labels.txt"
    labels.parent.mkdir(exist_ok=True)
    labels.symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="is a link"):
        models.load(tmp_path / "model", 1)


def test_a_gradient_named_as_tensorflows_savers_is_no_exception(tmp_path):
    served.times(tmp_path, 2.0)

    def use_saver(graph):
        names = [f.signature.name for f in graph.graph_def.library.function]
        saver = next(name for name in names if name.startswith("__inference__traced_save"))
        gradient = graph.graph_def.library.gradient.add()
        gradient.function_name, gradient.gradient_func = names[0], saver

    edit_graph(tmp_path, use_saver)
    with pytest.raises(ValueError, match="SaveV2"):
        allowed_ops.check(tmp_path)


def test_a_function_named_as_tensorflows_savers_is_no_exception(tmp_path):
    """Under the name of a function that saves, neither other ops nor calls are allowed."""
    tf.saved_model.save(ATTACKS["WriteFile"], str(tmp_path / "write"))
    tf.saved_model.save(ATTACKS["RestoreV2"], str(tmp_path / "restore"))

    def rename(graph):
        written = graph.SerializeToString()
        names = {f.signature.name for f in graph.graph_def.library.function}
        for name in names:
            if not name.startswith("__inference__traced"):  # keep the length
                other = ("__inference__traced_save" + "x" * len(name))[: len(name)]
                if len(name) > len("__inference__traced_save"):
                    written = written.replace(name.encode(), other.encode())
        graph.ParseFromString(written)

    for folder, op in (("write", "WriteFile"), ("restore", "RestoreV2")):
        edit_graph(tmp_path / folder, rename)
        with pytest.raises(ValueError, match=f"an untrusted model: {op}"):
            allowed_ops.check(tmp_path / folder)


def test_broken_variables_do_not_reach_tensorflow(tmp_path):
    """TensorFlow's reader of an index can crash the process."""
    served.times(tmp_path, 2.0)
    index = tmp_path / "variables" / "variables.index"
    content = bytearray(index.read_bytes())
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        index.write_bytes(damaged)
        try:
            allowed_ops.check(tmp_path)
        except ValueError as error:
            assert str(error).startswith(str(index))
    index.write_bytes(content[:-1])
    for load in (HubLayer, lambda folder: models.load(folder, 1)):
        with pytest.raises(ValueError, match=r"variables\.index: .*truncated"):
            load(tmp_path)


def test_allowed_ops_exist_and_access_no_files():
    known = set(served.CORE_OPS.read_text().splitlines())
    assert known >= allowed_ops.ALLOWED_OPS
    files = re.compile("File|Save|Restore|Reader|Dataset|PyFunc|Rpc|Send|Recv|Summary|Print|Debug")
    assert not [op for op in allowed_ops.ALLOWED_OPS if files.search(op)]


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
    with pytest.raises(ValueError, match="must not hold a vocabulary"):
        keras_bert.Preprocessor.from_config(config)
    text = keras.Input((), dtype="string")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
    keras.Model(text, keras_bert.Preprocessor(pieces)(text)).save(tmp_path / "model.keras")

    def change(config):
        layer_of(config, "Preprocessor")["config"]["vocabulary"] = str(secret)

    edit_config(tmp_path / "model.keras", change)
    for load in (keras_bert.load, keras.saving.load_model):
        with pytest.raises((ValueError, TypeError), match="must not hold a vocabulary"):
            load(tmp_path / "model.keras")


def test_a_layer_of_ones_own_is_named(tmp_path):
    class Own(keras.layers.Layer):
        def call(self, x):
            return x

    x = keras.Input((2,))
    keras.Model(x, Own()(x)).save(tmp_path / "own.keras")
    with pytest.raises(ValueError, match=r"contains .*Own, .*trusted=True"):
        keras_bert.load(tmp_path / "own.keras")


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


FOREIGN = [
    # Downloads a file when called.
    ("keras.applications.resnet50", "function", "decode_predictions"),
    ("keras.utils", "function", "get_file"),
    ("os", "function", "system"),
    # Tokenizers of KerasHub read files that are named in a config.
    ("keras_hub.src.models.parseq.parseq_tokenizer", "PARSeqTokenizer", {"vocabulary": "/file"}),
    ("keras_hub.src.models.whisper.whisper_tokenizer", "WhisperTokenizer", {"vocabulary": "/file"}),
]


@pytest.mark.parametrize(("module", "kind", "found"), FOREIGN)
def test_foreign_functions_and_objects_are_rejected(tmp_path, module, kind, found):
    x = keras.Input((2,))
    model = keras.Model(x, keras.layers.Activation("tanh")(keras.layers.Dense(2)(x)))
    model.save(tmp_path / "model.keras")

    def name_it(config):
        named = {"module": module, "class_name": kind, "config": found, "registered_name": kind}
        layer_of(config, "Activation")["config"]["activation"] = named

    edit_config(tmp_path / "model.keras", name_it)
    with pytest.raises(ValueError, match=r"was not loaded: it contains .*trusted=True"):
        keras_bert.load(tmp_path / "model.keras")


CALLED = [
    # Operations that call what a config names, while Keras builds the model.
    {"module": "keras.datasets.mnist", "class_name": "load_data", "config": {}},
    {"module": "keras.applications.mobilenet", "class_name": "MobileNet", "config": {}},
    {"module": "keras.config", "class_name": "set_floatx", "config": {}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 1}},
    "keras_bert>Preprocessor",
]


@pytest.mark.parametrize("operation", ["Switch", "Map", "Cond"])
@pytest.mark.parametrize("called", CALLED)
def test_operations_that_call_functions_are_refused(tmp_path, operation, called):
    x = keras.Input((2,))
    keras.Model(x, keras.layers.Dense(2)(x)).save(tmp_path / "model.keras")

    def add_call(config):
        config["config"]["layers"].append({
            "module": "keras.src.ops.core", "class_name": operation, "registered_name": None,
            "name": "call", "config": {"name": "call"},
            "inbound_nodes": [{"args": [0, [called], "/file"], "kwargs": {}}],
        })  # fmt: skip

    edit_config(tmp_path / "model.keras", add_call)
    with pytest.raises(ValueError, match=r"was not loaded: it contains .*trusted=True"):
        keras_bert.load(tmp_path / "model.keras")


@pytest.mark.parametrize("called", CALLED[:3])
def test_functions_in_place_of_layers_are_refused(tmp_path, called):
    x = keras.Input((2,))
    keras.Model(x, keras.layers.Dense(2)(x)).save(tmp_path / "model.keras")
    edit_config(
        tmp_path / "model.keras", lambda config: layer_of(config, "Dense")["config"].update(
            kernel_initializer=called
        )
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"was not loaded: it contains .*trusted=True"):
        keras_bert.load(tmp_path / "model.keras")


def test_a_model_with_operations_of_keras_needs_no_trust(tmp_path):
    x = keras.Input((2,))
    y = keras.ops.concatenate([x * 2 + 1, keras.ops.softmax(x), x[:, :1]], axis=1)
    y = keras.layers.Dense(2, keras.ops.silu, kernel_regularizer="l2", dtype="mixed_bfloat16")(y)
    model = keras.Model(x, keras.layers.GaussianNoise(0.1, seed=1)(y))
    model.save(tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(np.ones((1, 2))), model(np.ones((1, 2))))


def test_a_compiled_model_needs_no_trust(tmp_path):
    """The compile config of a model, or of a model within a model, is not code."""
    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    inner.compile("adam", "mse", metrics=["mae"])
    inner.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0)
    outer = keras.Sequential([keras.Input((2,)), inner, keras.layers.Dense(1)])
    outer.compile(keras.optimizers.AdamW(), keras.losses.MeanSquaredError())
    outer.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    outer.save(tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(np.ones((1, 2))), outer(np.ones((1, 2))))


@pytest.mark.slow
def test_import_from_a_script_with_the_name_of_the_command(tmp_path):
    script = tmp_path / "keras-bert.py"
    script.write_text(
        "import keras_bert, keras\n"
        "print(keras.saving.get_registered_object('keras_bert>BertEncoder').__name__)\n"
    )
    result = subprocess.run(
        [sys.executable, script],
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert result.stdout == "BertEncoder\n", result.stderr
