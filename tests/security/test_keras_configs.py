"""Attack: the config of a `.keras` file that names more than the layers of a model."""

import copy
import inspect
import io
import json
import sys
import tempfile
import time
import zipfile

import h5py
import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.hub import keras_config
from keras_bert.layers import activation
from tests import contract, tiny
from tests.machine import slowness
from tests.security import memory
from tests.security.rewriting import edit_config, edit_weights, layer_of, rewrite_zip

WATCHED: list[str] = []
IS_WATCHING: list[bool] = []


def watch(event, arguments):
    if IS_WATCHING and event in ("open", "import", "subprocess.Popen", "os.system", "exec"):
        WATCHED.append(f"{event} {arguments[0]}")


sys.addaudithook(watch)


@pytest.fixture(autouse=True)
def limit_resources(request):
    """Each attack must be refused within 10 seconds and 2 GB."""
    if request.node.get_closest_marker("slow"):
        yield
        return
    memory.reset_peak()
    before = memory.resident()
    start = time.process_time()
    yield
    assert memory.peak() - before < 1e9
    assert time.process_time() - start < 10 * slowness()


def build(config):
    """Build a model. Nothing may be opened, imported or run meanwhile."""
    WATCHED.clear()
    IS_WATCHING.append(True)
    try:
        return keras_config.build(config, 1)
    finally:
        IS_WATCHING.clear()
        assert not WATCHED


@pytest.fixture(scope="module")
def config():
    """The config of a functional model with a merging layer, a dense layer and a head."""
    x = keras.Input((2,), name="x")
    y = keras.layers.Dense(2, "tanh", name="dense")(keras.layers.Concatenate()([x, x]))
    output = heads.TaskOutput("classification", labels=["a", "b"], name="output")(y)
    built = json.loads(keras.Model(x, output, name="model").to_json())
    build(built)  # what is imported on first use
    return built


def layers_in(config):
    return {layer["class_name"]: layer for layer in config["config"]["layers"]}


def public_names():
    """Return (module, name) for what Keras exports, and for all registered classes."""
    modules = [keras]
    for name in dir(keras):
        if inspect.ismodule(getattr(keras, name)) and not name.startswith("_"):
            modules.append(getattr(keras, name))
    names = {
        (module.__name__.replace("._tf_keras", ""), name)
        for module in modules
        for name in dir(module)
        if callable(getattr(module, name)) and not name.startswith("_")
    }
    names |= {("os", "system"), ("builtins", "eval"), ("keras_hub.tokenizers", "Tokenizer")}
    names |= {("keras.src.ops.core", name) for name in ("Map", "Scan", "Cond", "Switch")}
    registered = keras.saving.get_custom_objects()
    names |= {(item.__module__, key) for key, item in registered.items()}
    names |= {(item.__module__, key.partition(">")[2]) for key, item in registered.items()}
    return sorted(names)


def spellings(module, name):
    """Return the ways in which a config can name a class or a function."""
    yield name
    short = name.partition(">")[2] or name
    for registered_name in (None, name, f"keras_bert>{short}"):
        item = {"module": module, "registered_name": registered_name}
        yield {**item, "class_name": short, "config": {}}
        yield {**item, "class_name": "function", "config": name}
    yield {"module": "builtins", "class_name": "function", "config": short}
    yield {"module": None, "class_name": short, "config": {"name": "a"}}
    yield {"class_name": "__lambda__", "config": {"value": name}}
    yield {"class_name": "__typespec__", "spec_name": short, "module": module, "config": []}


def places(config):
    """Yield (name of a place, function that puts an item there)."""
    layers = layers_in(config)

    def set_key(owner, key):
        return lambda item: owner.__setitem__(key, item)

    for key in ("activation", "kernel_initializer", "kernel_regularizer", "bias_constraint"):
        yield key, set_key(layers["Dense"]["config"], key)
    for key in ("dtype", "quantization_config", "units", "name", "other"):
        yield key, set_key(layers["Dense"]["config"], key)
    for key in ("labels", "prompts", "activation", "task"):
        yield f"{key} of the head", set_key(layers["TaskOutput"]["config"], key)
    yield "layer", lambda item: config["config"]["layers"].append(item)
    yield "argument", lambda item: layers["Dense"]["inbound_nodes"][0]["args"].append(item)
    yield "keyword", set_key(layers["Dense"]["inbound_nodes"][0]["kwargs"], "training")
    yield "build", set_key(layers["Dense"]["build_config"], "input_shape")
    yield "input", set_key(layers["InputLayer"]["config"], "dtype")
    yield "outputs", set_key(config["config"], "output_layers")
    yield "model", set_key(config, "config")


KNOWN = {
    *keras_config._OWN_LAYERS, *keras_config._KERAS_LAYERS, "InputLayer", "Functional", "TokenModel"
}  # fmt: skip


@pytest.mark.parametrize("step", [601, pytest.param(7, marks=pytest.mark.slow)])
def test_only_known_layers_are_reached_from_any_place(config, step):
    """Name everything that Keras exports or that is registered, in every place and spelling."""
    plain = json.dumps(config)
    names = public_names()
    assert len(names) > 800
    built = 0
    for index, (place, _) in enumerate(places(config)):
        for module, name in names[index % step :: step]:
            for item in spellings(module, name):
                changed = json.loads(plain)
                dict(places(changed))[place](item)
                try:
                    model = build(changed)
                except (ValueError, TypeError, AttributeError) as error:
                    assert not isinstance(error, keras_config.Refused) or str(error).isprintable()
                    continue
                built += 1
                assert {type(layer).__name__ for layer in model.layers} <= KNOWN, (place, item)
                dense = model.get_layer("dense") if place != "name" else model.layers[2]
                assert dense.activation in {keras.activations.get(n) for n in ACTIVATIONS}
                assert dense.kernel_regularizer is dense.bias_constraint is None
    assert built


ACTIVATIONS = [
    name for name in keras_config._ACTIVATIONS if name not in ("gelu_new", "gelu_pytorch_tanh")
]


def tensor(*history):
    return {"class_name": "__keras_tensor__", "config": {"keras_history": list(history)}}


X = tensor("x", 0, 0)
ARRAY = {"class_name": "__numpy__", "config": {"value": [[1.0, 2.0]], "dtype": "float32"}}
SLICE = {"class_name": "__slice__", "config": {"start": X, "stop": None, "step": None}}
POLICIES = {"module": "keras.dtype_policies", "class_name": "DTypePolicyMap"}


def policies(paths):
    paths = dict.fromkeys(paths, "int8_from_float32")
    return {**POLICIES, "config": {"default_policy": "float32", "policy_map": paths}}


@pytest.mark.parametrize(
    ("class_name", "keys", "value", "message"),
    [
        ("Dense", "inbound_nodes", [{"args": [ARRAY]}], "is called with None.__numpy__"),
        ("Dense", "inbound_nodes", [{"args": [X, SLICE]}], "is called with None.__slice__"),
        ("Dense", "inbound_nodes", [{"args": [1.0]}], "is called with 1.0"),
        ("Dense", "inbound_nodes", [{"args": []}], "is called without a tensor"),
        ("Dense", "inbound_nodes", [{"args": [X], "kwargs": {"mask": ARRAY}}], "is called with"),
        ("Dense", "inbound_nodes", [{"args": [X], "kwargs": {"training": "a"}}], "is called with"),
        ("Dense", "inbound_nodes", [{"args": [X]}] * 2, "is called 2 times"),
        ("Dense", "inbound_nodes", [], "is called 0 times"),
        ("Dense", "inbound_nodes", [[["x", 0, 0, {}]]], "in the format of Keras 2"),
        ("Dense", "inbound_nodes", [{"args": [tensor("y", 0, 0)]}], "output of an earlier layer"),
        ("Dense", "inbound_nodes", [{"args": [tensor("x", 0, -1)]}], "output of an earlier layer"),
        ("Dense", "inbound_nodes", [{"args": [tensor("x", 0, 9)]}], "output of an earlier layer"),
        ("Dense", "inbound_nodes", [{"args": [tensor(["x"], 0, 0)]}], "of an earlier layer"),
        ("Dense", "inbound_nodes", [{"args": [tensor("output", 0, 0)]}], "of an earlier layer"),
        ("Dense", "inbound_nodes", [{"args": [[X] * 2**15]}], "than 16384 inputs"),
        ("InputLayer", "inbound_nodes", [{"args": [X]}], "is called 1 times"),
        ("InputLayer", "config.batch_shape", [None, 2**40], "has the shape"),
        ("InputLayer", "config.batch_shape", [1] * 100, "has the shape"),
        ("InputLayer", "config.optional", True, "InputLayer has the argument 'optional'"),
        ("InputLayer", "config.sparse", True, "InputLayer has the argument 'sparse'"),
        ("Concatenate", "config.name", "x", "two of its layers have the name 'x'"),
        ("Dense", "config.units", [0] * 10, "the argument units of Dense"),
        ("Dense", "config.units", {"a": 1}, "the argument units of Dense"),
        ("Dense", "config.name", ["a"], "the argument name of Dense"),
        ("Dense", "config.weights", [[1.0]], "Dense has the argument 'weights'"),
        ("Dense", "config.of_a_newer_keras", 0, "Dense has the argument 'of_a_newer"),
        ("Dense", "config.kernel_regularizer", "l2", "Dense has the argument 'kernel_reg"),
        ("Dense", "config.activation", "my_function", "the argument activation of Dense"),
        ("Dense", "config.activation", [1], "the argument activation of Dense"),
        ("Dense", "config.dtype", policies(f"a{n}" for n in range(201)), "a policy_map"),
        ("Dense", "config.dtype", policies(["(a+)+b"]), "a policy_map"),
        ("Dense", "shared_object_id", "a", "a shared_object_id"),
        ("Dense", "registered_name", "mine>Dense", "is not known"),
        ("Dense", "module", "my_module", "is not known"),
        ("TaskOutput", "config.task", {"classification": 1}, "the argument task of TaskOutput"),
        ("TaskOutput", "config.names", ["a"] * 2**15, "the argument names of TaskOutput"),
        ("TaskOutput", "config.prompts", {str(n): "" for n in range(2**15)}, "argument prompts of"),
        ("TaskOutput", "module", "keras.layers", None),  # the registered name counts
    ],
)
def test_calls_and_arguments_are_checked(config, class_name, keys, value, message):
    changed = copy.deepcopy(config)
    owner = layers_in(changed)[class_name]
    *keys, last = keys.split(".")
    for key in keys:
        owner = owner[key]
    owner[last] = value
    if message is None:
        build(changed)
        return
    with pytest.raises(keras_config.Refused, match=message):
        build(changed)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dtype", "float16", "Model has the argument 'dtype'"),
        ("trainable", 0, "0 in place of true or false"),
        ("trainable", None, "None in place of true or false"),
    ],
)
def test_options_of_a_model_are_checked(config, key, value, message):
    changed = copy.deepcopy(config)
    changed["config"][key] = value
    with pytest.raises(keras_config.Refused, match=message):
        build(changed)


def test_no_argument_is_left_out(config):
    """An argument that is off may be unknown, but it may be on by default."""
    changed = copy.deepcopy(config)
    layers_in(changed)["Dense"]["config"]["autocast"] = False
    assert build(changed).get_layer("dense").autocast is False


def test_a_layer_that_is_used_again_counts_again(config):
    """Each of these models calls the one before it twice, in a file that grows by 1 KB."""

    def functional(number, layers, output):
        options = {"name": f"m{number}", "layers": layers}
        options |= {"input_layers": ["x", 0, 0], "output_layers": [output, 0, 0]}
        return {"class_name": "Functional", "config": options, "shared_object_id": number}

    def call(layer, name):
        return {**layer, "inbound_nodes": [{"args": [tensor(name, 0, 0)]}]}

    def without_dropout(number, name):
        again = {"class_name": "Functional", "config": {}, "shared_object_id": number}
        layer = {"module": "keras_bert", "class_name": "WithoutDropout"}
        layer["registered_name"] = "keras_bert>WithoutDropout"
        return {**layer, "config": {"name": name, "layer": again}}

    changed = copy.deepcopy(config)
    layers = changed["config"]["layers"]
    x = layers_in(config)["InputLayer"]
    layers.append(call(functional(0, [x, call(layers_in(config)["Dense"], "x")], "dense"), "x"))
    for number in range(30):
        twice = [call(without_dropout(number, "a"), "x"), call(without_dropout(number, "b"), "a")]
        layers.append(call(functional(number + 1, [x, *twice], "b"), "x"))
    with pytest.raises(keras_config.Refused, match="more than 300 layers"):
        build(changed)


# Attacks on the other members of a file


def save(path):
    """Save a small model of Keras' own layers."""
    x = keras.Input((2,), name="x")
    keras.Model(x, keras.layers.Dense(2, name="dense")(x)).save(path / "model.keras")
    return path / "model.keras"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def assert_refused(file, temporary, message):
    """Check that a file is refused, and that no temporary file is left."""
    with pytest.raises(ValueError, match=message) as caught:
        keras_bert.load(file)
    assert str(caught.value).isprintable()
    assert list(temporary.iterdir()) == []


def test_the_weights_of_an_unused_layer_count(tmp_path, temporary):
    file = save(tmp_path)

    def add_layer(config):
        layer = copy.deepcopy(layer_of(config, "Dense"))
        layer["config"] |= {"name": "unused", "units": 10**12}
        config["config"]["layers"].append(layer)

    edit_config(file, add_layer)
    assert_refused(file, temporary, "bytes of weights")


def test_weights_may_not_grow_when_they_are_read(tmp_path):
    """One byte in the file must not become eight bytes of memory."""
    inputs = keras.Input(shape=(500,))
    small = keras.Model(inputs, keras.layers.Dense(500)(inputs))
    small.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        assert archive.getinfo("model.weights.h5").file_size < 1.2e6

    def widen(config):
        layer_of(config, "Dense")["config"]["dtype"] = "float64"

    edit_config(tmp_path / "model.keras", widen)
    keras_bert.load(tmp_path / "model.keras")

    def shrink(weights):
        kernel = weights["layers/dense/vars"]
        for name in ("0", "1"):
            values = kernel[name][...]
            del kernel[name]
            kernel[name] = values.astype("int8")

    edit_weights(tmp_path / "model.keras", shrink)
    rewrite_zip(tmp_path / "model.keras", shrink_file)
    with pytest.raises(ValueError, match="bytes of weights in its config"):
        keras_bert.load(tmp_path / "model.keras")


def shrink_file(members):
    """Copy the weights to a new HDF5 file: a changed file keeps the room of deleted values."""
    old = h5py.File(io.BytesIO(members["model.weights.h5"]))
    data = io.BytesIO()
    with h5py.File(data, "w") as new:
        for name in old:
            old.copy(name, new)
    members["model.weights.h5"] = data.getvalue()


def test_large_variables_take_no_memory_before_they_are_refused(tmp_path):
    """LoRA reads the kernel, which would be computed at its full size."""
    file = save(tmp_path)

    def enlarge(config):
        dense = layer_of(config, "Dense")["config"]
        dense |= {"units": 2**29, "lora_rank": 1, "dtype": "int4_from_float32"}

    edit_config(file, enlarge)
    with pytest.raises(ValueError, match="bytes of weights"):
        keras_bert.load(file)


@pytest.mark.parametrize("dtype", ["int32", "complex64", "S4", "bool"])
def test_weights_of_another_kind_are_refused(tmp_path, dtype):
    file = save(tmp_path)

    def convert(weights):
        variables = weights["layers/dense/vars"]
        values = variables["0"][...]
        del variables["0"]
        variables["0"] = values.astype(dtype)

    edit_weights(file, convert)
    with pytest.raises(ValueError, match=r"has the dtype|must hold numbers"):
        keras_bert.load(file)


def test_members_that_keras_would_unpack_are_not_unpacked(tmp_path):
    file = save(tmp_path)
    with zipfile.ZipFile(file, "a") as archive:
        for number in range(5000):
            archive.writestr(f"assets/{number}/a/b/c/d/e/", b"")
        archive.writestr("assets/../../outside.txt", b"outside")
    start = time.perf_counter()
    keras_bert.load(file)
    assert time.perf_counter() - start < 5 * slowness()
    assert not list(tmp_path.rglob("outside.txt"))


def test_a_file_without_weights_is_refused(tmp_path, temporary):
    file = save(tmp_path)
    rewrite_zip(file, lambda members: members.pop("model.weights.h5"))
    assert_refused(file, temporary, "model.weights.h5 is missing")


def test_hidden_layers_need_weights(tmp_path, temporary):
    file = tmp_path / "model.keras"
    keras_bert.save(tiny.encoder(num_hidden_layers=1), file)
    edit_config(file, lambda config: config["config"].update(num_hidden_layers=100))
    assert_refused(file, temporary, "more layers than the file has weights")


def test_a_negative_number_of_layers_allows_no_others(tmp_path, temporary, config):
    file = tmp_path / "model.keras"
    keras_bert.save(tiny.encoder(num_hidden_layers=1), file)
    nested = copy.deepcopy(config)
    dense = layers_in(nested)["Dense"]
    for number in range(600):
        layer = {**dense, "config": {**dense["config"], "name": f"dense_{number}"}}
        nested["config"]["layers"].append(layer)
    options = {"num_hidden_layers": -(10**9), "preprocessor": nested}
    edit_config(file, lambda config: config["config"].update(options))
    assert_refused(file, temporary, "more than 300 layers")


def test_weights_without_a_layer_are_refused(tmp_path, temporary):
    file = save(tmp_path)
    edit_weights(file, lambda weights: weights.__setitem__("layers/dense_1/vars/0", np.ones(2)))
    assert_refused(file, temporary, "no layer for the weights 'layers/dense_1/vars/0'")


@pytest.mark.parametrize("name", [None, "assets/other/vocab.txt"])
def test_a_vocabulary_must_be_in_the_file(tmp_path, temporary, name):
    file = tmp_path / "model.keras"
    keras_bert.save(tiny.encoder(num_hidden_layers=1), file)

    def move(members):
        content = members.pop("assets/preprocessor/vocab.txt")
        if name is not None:
            members[name] = content

    rewrite_zip(file, move)
    assert_refused(file, temporary, "the vocabulary of its layer 'preprocessor' is missing")


def test_compile_configs_are_not_read(tmp_path):
    file = save(tmp_path)

    def compile_with(config):
        config["compile_config"] = {"optimizer": "keras_bert>HubLayer", "loss": {"a": []}}

    edit_config(file, compile_with)
    assert not keras_bert.load(file).compiled


# Models that need no trust


def with_two_inputs():
    encoder = tiny.encoder(num_hidden_layers=1)
    number = keras.Input((2,), name="number")
    pooled = encoder(encoder.input)["pooled_output"]
    y = keras.layers.Dense(2)(keras.layers.Concatenate()([pooled, number]))
    return keras.Model({**encoder.input, "number": number}, y)


def with_strings_as_inputs():
    """The preprocessor is a layer of the model, and the encoder refers to it as well."""
    return heads.with_text(heads.classifier(tiny.encoder(num_hidden_layers=1), 2))


def with_dense_layers():
    return heads.embedder(tiny.encoder(num_hidden_layers=1), layers=[keras.layers.Dense(2)])


@pytest.mark.parametrize(
    "build",
    [
        with_two_inputs, with_strings_as_inputs, with_dense_layers,
        lambda: contract.HEADS["features"](tiny.encoder()),
        lambda: heads.siamese(heads.embedder(tiny.encoder())),
    ],
)  # fmt: skip
def test_models_that_need_no_trust(build, tmp_path):
    model = build()
    model.save(tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras", task="auto")
    assert loaded.get_config().keys() == model.get_config().keys()
    for weight, again in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, again)
    assert heads.find_encoder(loaded).preprocessor.vocabulary == tuple(tiny.PIECES)
    assert [layer.name for layer in loaded.layers] == [layer.name for layer in model.layers]


def test_activations_are_known():
    for name in keras_config._ACTIVATIONS:
        assert callable(activation(name))


def test_arguments_of_known_layers_are_known():
    """A new version of Keras may add an argument. Decide then what an untrusted file may say."""
    layers = [
        keras.layers.Add(), keras.layers.Average(), keras.layers.Concatenate(),
        keras.layers.Dense(2), keras.layers.Dropout(0.1), keras.layers.LayerNormalization(),
        keras.layers.UnitNormalization(),
    ]  # fmt: skip
    assert {type(layer).__name__ for layer in layers} == set(keras_config._KERAS_LAYERS)
    for layer in layers:
        name = type(layer).__name__
        known = keras_config._KERAS_LAYERS[name][1] | keras_config._IGNORED
        unknown = {key: value for key, value in layer.get_config().items() if key not in known}
        assert not any(unknown.values()), (name, unknown)
