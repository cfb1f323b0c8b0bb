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
from keras_bert.layers.activations import activation
from keras_bert.untrusted import keras_config, keras_objects
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


@pytest.fixture(scope="module")
def config():
    """The config of a functional model with an encoder, a wrapper, an operation and an array."""
    encoder = tiny.encoder(num_hidden_layers=1)
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, max_sequence_length=32)
    x = keras.layers.Activation("tanh")(encoder(encoder.input)["sequence_output"])
    x = keras.layers.Bidirectional(keras.layers.LSTM(2))(x) + np.ones(4, "float32")
    x = keras.layers.Dense(2, kernel_regularizer="l2", bias_constraint="non_neg")(x)
    return json.loads(keras.Model(encoder.input, x).to_json())


def layers_in(config):
    return {layer["class_name"]: layer for layer in config["config"]["layers"]}


def rewrite(config):
    """Rewrite a config. Nothing may be opened, imported or run meanwhile."""
    WATCHED.clear()
    IS_WATCHING.append(True)
    try:
        return keras_config.rewrite(config)
    finally:
        IS_WATCHING.clear()
        assert not WATCHED


def class_names(item):
    """Yield the names of all classes in a config."""
    if isinstance(item, dict):
        if "class_name" in item:
            yield item["class_name"]
        for value in item.values():
            yield from class_names(value)
    elif isinstance(item, list):
        for value in item:
            yield from class_names(value)


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
    names |= {("keras.src.ops.numpy", name) for name in ("Arange", "Repeat", "Full", "Tile")}
    registered = keras.saving.get_custom_objects()
    names |= {(item.__module__, key) for key, item in registered.items()}
    names |= {(item.__module__, key.partition(">")[2]) for key, item in registered.items()}
    return sorted(names)


LISTED = frozenset(
    name
    for kind in vars(keras_objects).values()
    if isinstance(kind, keras_objects.Kind)
    for name in kind.classes
) | {"__keras_tensor__", "__numpy__", "__tensor__", "__slice__", "__ellipsis__"}


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

    yield "activation", set_key(layers["Activation"]["config"], "activation")
    for key in ("kernel_initializer", "kernel_regularizer", "bias_constraint", "dtype"):
        yield key, set_key(layers["Dense"]["config"], key)
    yield "quantization", set_key(layers["Dense"]["config"], "quantization_config")
    yield "units", set_key(layers["Dense"]["config"], "units")
    yield "wrapped", set_key(layers["Bidirectional"]["config"], "layer")
    yield "preprocessor", set_key(layers["BertEncoder"]["config"], "preprocessor")
    yield "layer", lambda item: config["config"]["layers"].append(item)
    yield "argument", lambda item: layers["Add"]["inbound_nodes"][0]["args"].append(item)
    yield "keyword", set_key(layers["Dense"]["inbound_nodes"][0]["kwargs"], "training")
    yield "array", set_key(layers["Add"]["inbound_nodes"][0]["args"][1]["config"], "dtype")
    yield "value", set_key(layers["Add"]["inbound_nodes"][0]["args"][1]["config"], "value")
    yield "build", set_key(layers["Dense"]["build_config"], "input_shape")
    yield "outputs", set_key(config["config"], "output_layers")
    yield "model", set_key(config, "config")


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_only_listed_objects_are_reached_from_any_place(config, step):
    """Name everything that Keras exports or that is registered, in every place and spelling."""
    plain = json.dumps(config)
    names = public_names()
    assert len(names) > 800
    accepted = 0
    for index, (place, _) in enumerate(places(config)):
        for module, name in names[index % step :: step]:
            for item in spellings(module, name):
                changed = json.loads(plain)
                dict(places(changed))[place](item)
                try:
                    rewritten = rewrite(changed)
                except keras_config.Refused as error:
                    assert str(error).isprintable()
                else:
                    accepted += 1
                    assert set(class_names(rewritten)) <= LISTED, (place, item)
    assert accepted


# Attacks on one place


def save(path):
    """Save a small model of Keras' own layers."""
    x = keras.Input((2,))
    y = keras.layers.Activation("tanh")(keras.layers.Dense(2)(x))
    keras.Model(x, y + 1.0).save(path / "model.keras")
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


def operation(name, module="keras.src.ops.numpy", args=(), **kwargs):
    """Return the config of an operation with one call."""
    return {
        "module": module, "class_name": name, "registered_name": name, "name": "call",
        "config": {"name": "call"}, "inbound_nodes": [{"args": list(args), "kwargs": kwargs}],
    }  # fmt: skip


TENSOR = {
    "class_name": "__keras_tensor__",
    "config": {"shape": [None, 2], "dtype": "float32", "keras_history": ["dense", 0, 0]},
}


def array(value, dtype):
    return {"class_name": "__numpy__", "config": {"value": value, "dtype": dtype}}


@pytest.mark.parametrize(
    "call",
    [
        operation("Arange", args=[0, 10**9]),
        operation("Add", args=[1, 2]),
        operation("Add", args=[array([1.0], "float32"), 2]),
        operation("Repeat", args=[TENSOR, 10**9]),
        operation("Tile", args=[TENSOR, [10**9, 1]]),
        operation("Full", args=[TENSOR, 1]),
        operation("Add", args=[TENSOR, array(["/etc/passwd"], "U11")]),
        operation("Add", args=[TENSOR, array([1], "object")]),
        operation("Add", args=[TENSOR, array(["a"], "float32")]),
        operation("Add", args=[TENSOR, 10**300]),
        operation("Map", "keras.src.ops.core", [{"class_name": "function"}, TENSOR]),
        operation("add", args=[TENSOR, TENSOR]),
        operation("Add", "os", [TENSOR, TENSOR]),
        operation("Add", args=[TENSOR, "keras_bert>HubLayer"]),
        {**operation("Reshape", args=[TENSOR]), "config": {"newshape": [1] * 1000}},
    ],
)
def test_calls_that_compute_at_once_or_create_large_data_are_refused(tmp_path, temporary, call):
    file = save(tmp_path)
    edit_config(file, lambda config: config["config"]["layers"].append(call))
    assert_refused(file, temporary, "was not loaded: ")


def test_the_weights_of_an_unused_layer_count(tmp_path, temporary):
    file = save(tmp_path)

    def add_layer(config):
        layer = copy.deepcopy(layer_of(config, "Dense"))
        layer["name"] = "unused"
        layer["config"]["units"] = 10**12
        config["config"]["layers"].append(layer)

    edit_config(file, add_layer)
    assert_refused(file, temporary, "bytes of weights")


def nested(depth, calls):
    """Return a model in which each model calls a smaller one several times."""
    x = keras.Input((2,))
    if depth == 0:
        return keras.Model(x, keras.layers.Activation("relu")(x))
    inner = nested(depth - 1, calls)
    y = x
    for _ in range(calls):
        y = inner(y)
    return keras.Model(x, y)


def test_models_within_models_are_counted_for_each_call():
    small = json.loads(nested(2, 2).to_json())
    assert set(class_names(rewrite(small))) == {
        "Functional", "InputLayer", "Activation", "DTypePolicy", "__keras_tensor__",
    }  # fmt: skip
    config = json.loads(nested(1, 2).to_json())
    for _ in range(20):  # the config of a deeper model, without building it
        outer = json.loads(nested(1, 2).to_json())
        old = layers_in(outer)["Functional"]
        outer["config"]["layers"] = [
            {**layer, "config": config["config"]} if layer is old else layer
            for layer in outer["config"]["layers"]
        ]
        config = outer
    with pytest.raises(keras_config.Refused, match="calls and inputs of layers"):
        rewrite(config)


@pytest.mark.parametrize(
    ("count", "message"), [(4000, "has 4001 layers"), (300, "45450 calls and inputs")]
)
def test_many_layers_are_refused(count, message):
    """Keras calls all layers of a `Sequential` again for each layer that it adds."""
    layer = {"module": "keras.layers", "class_name": "Identity", "config": {}}
    config = {
        "module": "keras", "class_name": "Sequential", "config": {"layers": [layer] * count},
    }  # fmt: skip
    with pytest.raises(keras_config.Refused, match=message):
        rewrite(config)


def tensor(name, call=0):
    history = [name, call, 0]
    config = {"shape": [None, 2], "dtype": "float32", "keras_history": history}
    return {"class_name": "__keras_tensor__", "config": config}


def functional(*layers):
    """Return the config of a model of (class, name, list of the inputs of each call)."""
    items = [
        {
            "module": "keras.layers", "class_name": kind, "config": {"name": name}, "name": name,
            "inbound_nodes": [{"args": call, "kwargs": {}} for call in calls],
        }
        for kind, name, calls in layers
    ]  # fmt: skip
    config = {"layers": items, "input_layers": [["x", 0, 0]], "output_layers": [["y", 0, 0]]}
    return {"module": "keras", "class_name": "Functional", "config": config}


def test_layers_before_their_inputs_are_refused():
    """Keras goes through all layers again for each of them."""
    chain = [("Identity", f"l{i}", [[tensor(f"l{i - 1}" if i else "x")]]) for i in range(200)]
    last = ("Identity", "y", [[tensor("l199")]])
    first = ("InputLayer", "x", [])
    rewrite(functional(first, *chain, last))
    with pytest.raises(keras_config.Refused, match="an order that takes long"):
        rewrite(functional(last, *reversed(chain), first))
    # Two layers whose many calls wait for each other, beside others that wait.
    a = [[tensor("x")], *([tensor("b", call)] for call in range(900))]
    b = [[tensor("a", call)] for call in range(900)]
    others = [("Identity", f"o{i}", [[tensor("b", 899)]]) for i in range(100)]
    sum_of_all = ("Add", "y", [[[tensor(f"o{i}") for i in range(100)]]])
    with pytest.raises(keras_config.Refused, match="an order that takes long"):
        rewrite(functional(first, *others, ("Identity", "b", b), ("Identity", "a", a), sum_of_all))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([("Identity", "y", [[tensor("y")]])], "wait for each other"),
        ([("Identity", "y", [[tensor("x")]])] * 2, "two layers of a model have the same name"),
        ([("Identity", "y", [])], "must have inputs, unless"),
        ([("InputLayer", "y", [[tensor("x")]])], "must have inputs, unless"),
        ([("Identity", "y", [[tensor("x", -1)]])], "must name the output of a layer"),
        ([("Identity", "y", [[tensor(["x"])]])], "must name the output of a layer"),
    ],
)
def test_inputs_of_layers_are_checked(layers, message):
    with pytest.raises(keras_config.Refused, match=message):
        rewrite(functional(("InputLayer", "x", []), *layers))


def test_arguments_of_calls_are_limited():
    first = ("InputLayer", "x", [])
    for call in ([tensor("x")] * 1001, [[0] * 1001, tensor("x")]):
        with pytest.raises(keras_config.Refused, match="a list of 1001 values"):
            rewrite(functional(first, ("Add", "y", [[call]])))


def policies(paths):
    config = {"default_policy": None, "policy_map": dict.fromkeys(paths, "int8")}
    module = "keras.dtype_policies"
    return {"module": module, "class_name": "DTypePolicyMap", "config": config}


def layer(class_name, **config):
    return {"module": "keras.layers", "class_name": class_name, "config": config}


def nested_lists(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


UNITS = ("Dense", "config", "units")
SHAPE = ("Dense", "build_config", "input_shape")
NAME = ("Dense", "config", "name")
ACTIVATION = ("Activation", "config", "activation")
LSTM = ("Bidirectional", "config", "layer", "config")
DTYPE = ("Dense", "config", "dtype")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (UNITS, nested_lists(500), "levels deep"),
        (UNITS, [0] * 1_100_000, "more than 1000000 values"),
        (UNITS, 10**400, "is 1000.*"),
        (SHAPE, [1] * 100, "100 dimensions"),
        (SHAPE, [-5], "-5 in place of a size"),
        (("Dense", "inbound_nodes"), [[["x", 0, 0, {}]]], "in the format of Keras 2"),
        (SHAPE, [[1]] * 20_000, "20000 dimensions"),
        (DTYPE, policies(f"a{number}" for number in range(501)), "501 paths"),
        (DTYPE, policies(["(a+)+b"]), "a path in its dtype policies"),
        (NAME, [1] * 100, "the argument name of Dense has"),
        (NAME, [[1] * 100], "the argument name of Dense has"),
        (NAME, "a" * 2000, "the argument name of Dense has"),
        (("Dense", "shared_object_id"), "a", "a shared_object_id"),
        (("Dense", "name"), "a\nb", "the name"),
        (("Dense", "config", "weights"), [[1.0]], "Dense has the argument 'weights'"),
        (("Dense", "config", "gptq_unpacked_column_size"), 10**9, "Dense has the argument 'gptq"),
        (("Dense", "config", "my_initializer"), "zeros", "Dense has the argument 'my_init"),
        (ACTIVATION, layer("StackedRNNCells", cells=[]), "which can run code or is not known"),
        (ACTIVATION, layer("Dense", units=1), "which can run code or is not known"),
        # With these options, Keras computes when it builds the layer.
        ((*LSTM, "stateful"), True, "stateful=True"),
        ((*LSTM, "unroll"), 1, "unroll=True"),
    ],
)
def test_values_are_limited(config, place, value, message):
    changed = copy.deepcopy(config)
    class_name, *keys, last = place
    owner = layers_in(changed)[class_name]
    for key in keys:
        owner = owner[key]
    owner[last] = value
    with pytest.raises(keras_config.Refused, match=message):
        rewrite(changed)


@pytest.mark.parametrize("name", ["Normalization", "SpectralNormalization", "TextVectorization"])
def test_layers_that_compute_what_the_file_chooses_are_not_listed(name):
    assert name not in keras_objects.KERAS_LAYERS.classes


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
    with pytest.raises(ValueError, match="declares at least 2e\\+06 bytes of weights"):
        keras_bert.load(tmp_path / "model.keras")


def shrink_file(members):
    """Copy the weights to a new HDF5 file: a changed file keeps the room of deleted values."""
    old = h5py.File(io.BytesIO(members["model.weights.h5"]))
    data = io.BytesIO()
    with h5py.File(data, "w") as new:
        for name in old:
            old.copy(name, new)
    members["model.weights.h5"] = data.getvalue()


def test_initializers_of_a_file_do_not_run(tmp_path, monkeypatch):
    """`Orthogonal` of a large matrix takes minutes."""
    inputs = keras.Input(shape=(3,))
    model = keras.Model(inputs, keras.layers.Dense(2, kernel_initializer="orthogonal")(inputs))
    model.save(tmp_path / "model.keras")
    monkeypatch.setattr(keras.initializers.Orthogonal, "__call__", None)
    again = keras_bert.load(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])
    assert type(again.layers[-1].kernel_initializer) is keras.initializers.Orthogonal


def test_large_variables_take_no_memory_before_they_are_refused(tmp_path):
    """LoRA reads the kernel, which would be computed at its full size."""
    file = save(tmp_path)

    def enlarge(config):
        dense = layer_of(config, "Dense")["config"]
        dense |= {"units": 2**29, "lora_rank": 1, "dtype": "int4_from_float32"}

    edit_config(file, enlarge)
    with pytest.raises(ValueError, match="bytes of weights"):
        keras_bert.load(file)


@pytest.mark.parametrize("place", ["/", "layers"])
@pytest.mark.parametrize(
    "link", [h5py.ExternalLink("/etc/hostname", "/"), h5py.SoftLink("/layers/dense")]
)
def test_links_in_the_weights_are_refused(tmp_path, place, link):
    file = save(tmp_path)
    edit_weights(file, lambda weights: weights[place].__setitem__("other", link))
    with pytest.raises(ValueError, match="has the link 'other'"):
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


ARRAY = {"class_name": "__numpy__", "config": {"value": [[1.0]], "dtype": "float32"}}


def test_layers_that_would_compute_at_once_are_refused(config):
    dense = layers_in(config)["Dense"]["inbound_nodes"][0]
    tensor = copy.deepcopy(dense["args"][0])
    within = {"class_name": "__slice__", "config": {"start": tensor, "stop": None, "step": None}}
    for call in ({"args": [ARRAY, within]}, {"args": [tensor], "kwargs": {"mask": ARRAY}}):
        changed = copy.deepcopy(config)
        layers_in(changed)["Dense"]["inbound_nodes"][0] |= call
        with pytest.raises(keras_config.Refused, match=r"a slice|with an array"):
            rewrite(changed)


def test_own_layers_have_arguments_of_their_kinds(tmp_path):
    file = tmp_path / "model.keras"
    keras_bert.save(heads.classifier(tiny.encoder(), 2), file)

    def edit(config):
        layer_of(config, "TaskOutput")["config"]["task"] = {"classification": 1}

    edit_config(file, edit)
    with pytest.raises(ValueError, match="the argument task of TaskOutput is"):
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda members: members.pop("model.weights.h5"), "model.weights.h5 is missing"),
        (lambda members: members.update({"config.json": b" " * 2**24 + b"{}"}), "16777216 bytes"),
        (
            lambda members: members.update({f"assets/{n}/vocab.txt": b"" for n in range(101)}),
            "more than 100 vocabularies",
        ),
    ],
)
def test_members_are_limited(tmp_path, temporary, change, message):
    file = save(tmp_path)
    rewrite_zip(file, change)
    assert_refused(file, temporary, message)


def test_hidden_layers_need_weights(tmp_path, temporary):
    file = tmp_path / "model.keras"
    keras_bert.save(tiny.encoder(num_hidden_layers=1), file)
    edit_config(file, lambda config: config["config"].update(num_hidden_layers=100))
    assert_refused(file, temporary, "num_hidden_layers is 100; the file has")


def test_compile_configs_are_not_read(tmp_path):
    file = save(tmp_path)

    def compile_with(config):
        config["compile_config"] = {"optimizer": "keras_bert>HubLayer", "loss": {"a": []}}

    edit_config(file, compile_with)
    assert not keras_bert.load(file).compiled


# Models that need no trust


def layers_of_keras():
    """Yield an instance of each listed layer that has defaults, or the arguments below."""
    arguments = {
        "Dense": (2,), "EinsumDense": ("ab,bc->ac", 3), "Embedding": (5, 2),
        "Activation": ("relu",), "ReversibleEmbedding": (5, 2), "MultiHeadAttention": (2, 2),
        "GroupQueryAttention": (2, 2, 1), "GroupedQueryAttention": (2, 2, 1),
        "Rescaling": (0.5,), "Dropout": (0.1,), "AlphaDropout": (0.1,), "GaussianDropout": (0.1,),
        "GaussianNoise": (0.1,), "SpatialDropout1D": (0.1,), "SpatialDropout2D": (0.1,),
        "SpatialDropout3D": (0.1,), "Dot": (1,), "Permute": ((1,),), "Reshape": ((-1,),),
        "LSTM": (2,), "LSTMCell": (2,), "GRU": (2,), "GRUCell": (2,), "SimpleRNN": (2,),
        "SimpleRNNCell": (2,), "InputLayer": ((2,),), "RNN": (keras.layers.LSTMCell(2),),
        "StackedRNNCells": ([keras.layers.GRUCell(2)],), "Wrapper": (keras.layers.Dense(2),),
        "TimeDistributed": (keras.layers.Dense(2),), "Bidirectional": (keras.layers.GRU(2),),
    }  # fmt: skip
    # Keras 3.16 renames a layer, so each version lacks a name.
    for name in sorted(keras_objects.KERAS_LAYERS.classes & set(dir(keras.layers))):
        default = (
            (2, 2) if "Conv" in name else (2,) if "Pooling" in name and "Global" not in name else ()
        )
        yield name, getattr(keras.layers, name)(*arguments.get(name, default))


def test_each_listed_layer_of_keras_can_be_read():
    for name, layer in layers_of_keras():
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        sequential = {"module": "keras", "class_name": "Sequential", "config": {"layers": [config]}}
        rewritten = rewrite(sequential)["config"]["layers"][0]
        again = keras.saving.deserialize_keras_object(rewritten)
        assert type(again) is type(layer), name
        assert again.get_config() == layer.from_config(layer.get_config()).get_config(), name


def constructor_arguments(listed):
    """Return the names of the arguments of a class, those of its bases included."""
    names = set()
    for base in listed.__mro__:
        if base.__module__.startswith("keras.") and "__init__" in vars(base):
            names |= set(inspect.signature(base.__init__).parameters)
    return names - {"self", "args", "kwargs"}


# Known, but not listed: data, or what `Layer.get_config` does not write.
UNLISTED = {"weights", "input_tensor", "gptq_unpacked_column_size", "autocast"}
# Rewritten apart.
REWRITTEN = {"cells", "default_policy", "policy_map"}


def test_arguments_of_listed_classes_are_known():
    """A new version of Keras may add an argument. Decide then what an untrusted file may say."""
    known = (
        keras_objects.VALUE_ARGUMENTS
        | keras_objects.SHAPE_ARGUMENTS
        | keras_objects.DTYPE_ARGUMENTS
        | frozenset().union(*(group.arguments for group in keras_objects.OBJECT_ARGUMENTS))
    )
    for kind in vars(keras_objects).values():
        if not isinstance(kind, keras_objects.Kind) or "keras_bert" in kind.modules:
            continue
        for module in kind.modules & set(sys.modules):
            for name in kind.classes & set(dir(sys.modules[module])):
                arguments = constructor_arguments(getattr(sys.modules[module], name))
                if name not in ("Functional", "Model", "Sequential"):
                    assert arguments <= known | UNLISTED | REWRITTEN, name


def test_listed_names_exist():
    for kind, owner in (
        (keras_objects.INITIALIZERS, keras.initializers),
        (keras_objects.REGULARIZERS, keras.regularizers),
        (keras_objects.CONSTRAINTS, keras.constraints),
        (keras_objects.DTYPE_POLICIES, keras.dtype_policies),
        (keras_objects.QUANTIZATIONS, keras.quantizers),
    ):
        assert kind.classes <= set(dir(owner))
    for name in keras_objects.ACTIVATIONS:
        assert callable(activation(name))
    for name in keras_objects.INITIALIZER_NAMES - {"Constant"}:
        assert isinstance(keras.initializers.get(name), keras.Initializer)
    operations = {
        name for module in keras_objects.OPERATIONS.modules for name in dir(sys.modules[module])
    }
    assert keras_objects.OPERATIONS.classes <= operations
    registered = keras.saving.get_custom_objects()
    own = keras_objects.OWN_LAYERS.classes | keras_objects.OWN_FUNCTIONAL.classes
    assert {f"keras_bert>{name}" for name in own} <= set(registered)


def on_the_outputs_of_an_encoder():
    """Such a model has the layers of the encoder, not the encoder."""
    encoder = tiny.encoder(num_hidden_layers=1)
    y = keras.layers.Dense(2, kernel_initializer="he_normal")(encoder.output["pooled_output"])
    return keras.Model(encoder.input, y), encoder.preprocessor(["good"])


def with_shared_layers_and_lora():
    dense = keras.layers.Dense(2)
    x = keras.Input((2,))
    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2), keras.layers.Dense(2)])
    model = keras.Model(x, inner(dense(x)) + dense(inner(dense(x))))
    inner.layers[1].enable_lora(1)
    return model, np.ones((1, 2))


def with_strings_as_inputs():
    """The preprocessor is a layer of the model, and the encoder refers to it as well."""
    encoder = tiny.encoder(num_hidden_layers=1)
    text = keras.Input((), dtype="string", name="text")
    number = keras.Input((2,), name="number")
    pooled = encoder(encoder.preprocessor(text))["pooled_output"]
    y = keras.layers.Dense(2)(keras.layers.Concatenate()([pooled, number]))
    texts = keras.ops.convert_to_tensor(["good", "예"])
    inputs = {"text": texts, "number": keras.ops.ones((2, 2))}
    return keras.Model({"text": text, "number": number}, y), inputs


def with_operations():
    x = keras.Input((2,))
    y = keras.ops.concatenate([x * 2 + 1, keras.ops.softmax(x), x[:, :1]], axis=1)
    y = keras.layers.Dense(2, keras.ops.silu, kernel_regularizer="l2", dtype="mixed_bfloat16")(y)
    return keras.Model(x, keras.layers.GaussianNoise(0.1, seed=1)(y)), np.ones((1, 2))


def compiled():
    """The compile config of a model, or of a model within a model, is not code."""
    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    inner.compile("adam", "mse", metrics=["mae"])
    inner.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0)
    outer = keras.Sequential([keras.Input((2,)), inner, keras.layers.Dense(1)])
    outer.compile(keras.optimizers.AdamW(), keras.losses.MeanSquaredError())
    outer.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    return outer, np.ones((1, 2))


@pytest.mark.parametrize(
    "build",
    [
        on_the_outputs_of_an_encoder, with_shared_layers_and_lora, with_strings_as_inputs,
        with_operations, compiled,
    ],
)  # fmt: skip
def test_models_that_need_no_trust(build, tmp_path):
    model, inputs = build()
    model.save(tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras")
    assert not loaded.compiled and len(loaded.weights) == len(model.weights)
    np.testing.assert_allclose(loaded(inputs), model(inputs), rtol=1e-6)


MODELS = {
    "features": lambda: contract.HEADS["features"](tiny.encoder()),
    "siamese": lambda: heads.siamese(heads.embedder(tiny.encoder())),
    "prompts": lambda: heads.embedder(tiny.encoder(), prompts={"q": "a"}, default_prompt="q"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_keras_saved_on_another_machine_load(name, tmp_path):
    """`model.save` of Keras notes no file; tests/properties has the models of all tasks."""
    model = MODELS[name]()
    model.save(tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras", task="auto")
    for weight, again in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, again)
    assert heads.find_encoder(loaded).preprocessor.vocabulary == tuple(tiny.PIECES)
