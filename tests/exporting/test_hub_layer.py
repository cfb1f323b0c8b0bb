"""Tests of `HubLayer`: training, saving, reloading in a new process, and exporting."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.exporting.hub_layer import HubLayer
from tests import tiny

numpy = keras.ops.convert_to_numpy
TEXTS = ["so good!", "bad film", "this is good", "so bad"] * 4
LABELS = np.array([1, 0, 1, 0] * 4)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Folders of an exported preprocessor and encoder."""
    encoder = tiny.learner(max_position_embeddings=160)
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, max_sequence_length=16)
    folder = tmp_path_factory.mktemp("pair")
    keras_bert.export(encoder, folder)
    return folder / "preprocess" / "1", folder / "encoder" / "1"


def classifier(pair, trainable=True):
    """A model from strings to two logits, with both SavedModels."""
    text = keras.Input(shape=(), dtype="string", name="text")
    inputs = HubLayer(pair[0], trusted=True, name="preprocess")(text)
    x = HubLayer(pair[1], trainable, trusted=True, name="encoder")(inputs)["pooled_output"]
    return keras.Model(text, keras.layers.Dense(2, name="logits")(x))


def test_an_export_needs_trust(pair):
    for folder in pair:
        with pytest.raises(ValueError, match=f"^{folder}: .* is a program.* trusted=True"):
            HubLayer(folder)


@pytest.mark.slow
def test_trainable_can_be_changed(pair):
    model = classifier(pair, trainable=False)
    assert len(model.trainable_weights) == 2
    assert len(model.get_layer("encoder").non_trainable_weights) > 10
    model.get_layer("encoder").trainable = True
    assert len(model.trainable_weights) > 10


def test_training_argument(tmp_path):
    encoder = tiny.encoder(hidden_dropout_prob=0.5, num_hidden_layers=1)
    encoder.preprocessor = None
    keras_bert.export(encoder, tmp_path / "pair")
    layer = HubLayer(tmp_path / "pair" / "encoder" / "1", trusted=True)
    ids = tf.ones((1, 4), tf.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": ids}
    inference = [numpy(layer(inputs)["pooled_output"]) for _ in range(2)]
    np.testing.assert_array_equal(*inference)
    training = [numpy(layer(inputs, training=True)["pooled_output"]) for _ in range(2)]
    assert np.abs(training[0] - training[1]).max() > 1e-3
    np.testing.assert_allclose(inference[0], numpy(encoder(inputs)["pooled_output"]), atol=1e-5)


@pytest.mark.slow
def test_saved_model_reloads_in_another_process(pair, python, tmp_path):
    """The .keras file works after the original SavedModels are deleted."""
    mine = [tmp_path / name for name in ("preprocess", "encoder")]
    for source, target in zip(pair, mine, strict=True):
        shutil.copytree(source, target)
    model = classifier(mine)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(8)
    model.fit(dataset, epochs=2, shuffle=False, verbose=0)
    with pytest.warns(UserWarning, match="trusted=True"):
        keras_bert.save(model, tmp_path / "model.keras")
    expected = model.predict(tf.constant(TEXTS[:4]), verbose=0)
    for folder in mine:
        shutil.rmtree(folder)
    np.save(tmp_path / "expected.npy", expected)
    python(
        "-c",
        f"""
import warnings
import keras_bert, numpy as np, tensorflow as tf
warnings.filterwarnings("ignore", ".*trusted=True")
model = keras_bert.load({str(tmp_path / "model.keras")!r}, trusted=True)
found = model.predict(tf.constant({TEXTS[:4]!r}), verbose=0)
np.testing.assert_allclose(found, np.load({str(tmp_path / "expected.npy")!r}), atol=1e-6)
assert len(model.trainable_weights) > 10
keras_bert.save(model, {str(tmp_path / "again.keras")!r})
""",
    )
    again = keras_bert.load(tmp_path / "again.keras", trusted=True)
    np.testing.assert_allclose(
        again.predict(tf.constant(TEXTS[:4]), verbose=0), expected, atol=1e-6
    )
    served = tf.saved_model.load(str(keras_bert.export(again, tmp_path / "exported")))
    del again
    found = served.signatures["serving_default"](text=tf.constant(TEXTS[:4]))["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


class Doubler(tf.Module):
    """A module that returns a list, has a loss and state, and no argument `training`."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable([[1.0], [2.0]], name="deep/kernel")
        self.count = tf.Variable(0, trainable=False, name="count")
        self.regularization_losses = [self.loss]

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, x):
        self.count.assign_add(1)
        return [x @ self.kernel, 2 * x]

    @tf.function(input_signature=[])
    def loss(self):
        return tf.reduce_sum(self.kernel**2)


def test_lists_losses_and_state(tmp_path):
    tf.saved_model.save(Doubler(), str(tmp_path / "doubler"))
    layer = HubLayer(tmp_path / "doubler", trusted=True)
    x = keras.Input((2,))
    model = keras.Model(x, layer(x))
    found = model(np.array([[3.0, 4.0]], "float32"))
    assert [numpy(item).tolist() for item in found] == [[[11.0]], [[6.0, 8.0]]]
    assert [float(loss) for loss in model.losses] == [5.0]
    assert {weight.name for weight in layer.weights} == {"deep_kernel", "count"}
    assert [weight.name for weight in layer.trainable_weights] == ["deep_kernel"]


def test_outputs_named_shape_and_dtype(tmp_path):
    module = tf.Module()
    specs = [tf.TensorSpec([None, 2])]
    module.__call__ = tf.function(lambda x: {"shape": x, "dtype": [x]}, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path / "module"))
    x = keras.Input((2,))
    keras.Model(x, HubLayer(tmp_path / "module", trusted=True)(x)).save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=False)
    assert sorted(reloaded(np.ones((1, 2), "float32"))) == ["dtype", "shape"]


def test_layer_from_config_cannot_be_called(tmp_path):
    tf.saved_model.save(Doubler(), str(tmp_path))
    layer = HubLayer.from_config(HubLayer(tmp_path, trusted=True).get_config())
    with pytest.raises(ValueError, match="has no SavedModel"):
        layer(np.ones((1, 2), "float32"))


@pytest.mark.parametrize("content", ["nothing", "signatures", "broken"])
def test_errors(tmp_path, content):
    message = "must be the folder of a SavedModel"
    if content == "signatures":
        tf.saved_model.save(tf.Module(), str(tmp_path))
        message = "has only signatures"
    elif content == "broken":
        (tmp_path / "saved_model.pb").write_bytes(b"no message")
        message = f"{tmp_path} could not be loaded: "
    with pytest.raises(ValueError, match=message) as caught:
        HubLayer(tmp_path, trusted=True)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="has no saved_model.pb"):
        HubLayer(tmp_path / "nothing")


@pytest.mark.slow
def test_mirrored_strategy_trains_like_one_device(pair, python):
    """The weights are the same after training on two logical devices and on one."""
    program = f"""
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_bert import HubLayer
texts, labels = {TEXTS!r}, np.array({LABELS.tolist()!r})

def train(strategy):
    keras.utils.set_random_seed(0)
    preprocess = tf.saved_model.load({str(pair[0])!r})  # Keras' fit does not accept strings here
    with strategy.scope():
        keys = "input_word_ids", "input_mask", "input_type_ids"
        inputs = {{key: keras.Input((None,), dtype="int32", name=key) for key in keys}}
        x = HubLayer({str(pair[1])!r}, trusted=True, name="encoder")(inputs)
        model = keras.Model(inputs, keras.layers.Dense(2)(x["pooled_output"]))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.3), loss, jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(8).repeat(2)
    data = data.map(lambda texts, labels: (preprocess(texts), labels))
    model.fit(data, shuffle=False, verbose=0)
    return model.get_layer("encoder").get_weights(), model.get_weights()

two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert two.num_replicas_in_sync == 2
(_, found), (trained, expected) = train(two), train(tf.distribute.get_strategy())
for a, b in zip(found, expected, strict=True):
    np.testing.assert_allclose(a, b, atol=2e-5)
loaded = HubLayer({str(pair[1])!r}, trusted=True).get_weights()
assert max(abs(a - b).max() for a, b in zip(trained, loaded)) > 0.01
"""
    python("-c", program)
