"""Finding TensorFlow checkpoints in a folder, and reading their tensors without TensorFlow."""

import numpy as np
import pytest

import keras_bert
from keras_bert.checkpoints import bundle
from tests.checkpoints.tensorflow_files import save
from tests.security import fuzz

tf = pytest.importorskip("tensorflow")

DTYPES = ["bool", "float16", "bfloat16", "float32", "float64"]
DTYPES += [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


def flip(file, position):
    """Change a bit of a byte."""
    content = bytearray(file.read_bytes())
    content[position] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (3,), (2, 3, 4), (300, 70)])
def test_tensors_are_those_that_tensorflow_reads(tmp_path, dtype, shape):
    values = np.random.default_rng(0).integers(0, 100, shape)
    save(tmp_path / "ckpt", other=tf.range(5), a=tf.cast(values, dtype))
    found = bundle.read(tmp_path / "ckpt")
    expected = tf.train.load_checkpoint(str(tmp_path / "ckpt")).get_tensor("a")
    assert found.shapes == {"other": (5,), "a": shape}
    assert found.load("a").dtype == expected.dtype
    np.testing.assert_array_equal(found.load("a"), expected)


@pytest.mark.parametrize("size", [0, 5, 200, 70_000])
def test_strings(tmp_path, size):
    text = bytes(range(256)) * (size // 256 + 1)
    save(tmp_path / "ckpt", a=tf.constant(text[:size]))
    assert bundle.read(tmp_path / "ckpt").load("a") == text[:size]


def test_several_data_files(tmp_path):
    save(tmp_path / "one", a=tf.range(5))
    save(tmp_path / "two", b=tf.range(7))
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[str(tmp_path / "one"), str(tmp_path / "two")],
        destination_prefix=str(tmp_path / "ckpt"),
    )
    assert len(list(tmp_path.glob("ckpt.data-*"))) == 2
    found = bundle.read(tmp_path / "ckpt")
    np.testing.assert_array_equal(found.load("a"), range(5))
    np.testing.assert_array_equal(found.load("b"), range(7))


@pytest.mark.parametrize("value", ["text", [1.0, 2.0, 3.0]])
def test_every_changed_byte_of_the_data_is_noticed(tmp_path, value):
    file = save(tmp_path / "ckpt", a=tf.constant(value))
    content = file.read_bytes()
    for position in range(len(content)):
        flip(file, position)
        with pytest.raises(ValueError, match="ckpt: must be a complete .* in 'a', received "):
            bundle.read(tmp_path / "ckpt").load("a")
        file.write_bytes(content)


def test_every_changed_byte_of_the_index_is_noticed(tmp_path):
    save(tmp_path / "ckpt", a=tf.range(5))
    file = tmp_path / "ckpt.index"
    content = file.read_bytes()
    footer = 48  # it is padded
    for position in range(len(content) - footer):
        flip(file, position)
        with pytest.raises(ValueError, match="ckpt: must be a complete TensorFlow checkpoint"):
            bundle.read(tmp_path / "ckpt")
        file.write_bytes(content)


def test_a_data_file_that_is_cut_later(tmp_path):
    file = save(tmp_path / "ckpt", a=tf.range(5))
    found = bundle.read(tmp_path / "ckpt")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="less data than .* load it again"):
        found.load("a")


def test_a_folder_with_the_name_of_a_checkpoint_is_not_read(tmp_path):
    """TensorFlow would read the checkpoint in the folder in place of the one beside it."""
    save(tmp_path / "ckpt", a=tf.range(5))
    (tmp_path / "ckpt").mkdir()
    save(tmp_path / "ckpt" / "other", a=tf.range(7))
    (tmp_path / "ckpt" / "checkpoint").write_text('model_checkpoint_path: "other"\n')
    np.testing.assert_array_equal(bundle.read(tmp_path / "ckpt").load("a"), range(5))
    (tmp_path / "ckpt" / "other.index").write_bytes(b"broken")
    np.testing.assert_array_equal(bundle.read(tmp_path / "ckpt").load("a"), range(5))


WITHOUT_TENSORFLOW = """
import sys
import numpy as np
sys.modules["tensorflow"] = None
import keras_bert
for folder in sys.argv[1:]:
    encoder = keras_bert.load(folder)
    np.savez(folder + "/loaded", *encoder.get_weights())
try:
    keras_bert.save(encoder, folder + "/written", format="google")
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
def test_loading_without_tensorflow(tmp_path, python):
    folders = []
    for reader in ("google", "model_garden", "saved_model"):
        folder = tmp_path / reader
        folder.mkdir()
        fuzz.READERS[reader][0](folder)
        folders.append(folder)
    printed = python("-c", WITHOUT_TENSORFLOW, *folders, backend="jax")
    for folder in folders:
        with np.load(folder / "loaded.npz") as loaded:
            for array, expected in zip(
                loaded.values(), keras_bert.load(folder).get_weights(), strict=True
            ):
                np.testing.assert_array_equal(array, expected)
    assert "writing a TensorFlow checkpoint needs TensorFlow" in printed
    assert "pip install" in printed
