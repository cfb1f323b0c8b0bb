"""Reading of the weights that the TensorFlow classes of transformers 4 saved."""

import h5py
import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.checkpoints import tensor_files
from tests import tiny
from tests.checkpoints import tensorflow_files
from tests.properties import subjects

TASKS = [
    "classification", "tagging", "question_answering", "multiple_choice", "masked_tokens",
    "next_sentence", "pretraining",
]  # fmt: skip


def model_of(task):
    if task is None:
        return tiny.encoder()
    if task == "question_answering":  # without no_answer=True, which the format does not keep
        return heads.span_selector(tiny.encoder())
    return subjects.model(task)


def weights_of(folder, task):
    keras.utils.set_random_seed(0)  # for a pooler that the folder does not have
    model = keras_bert.load(folder, task=task)
    return {variable.path: keras.ops.convert_to_numpy(variable) for variable in model.weights}


@pytest.mark.parametrize("write", [tensorflow_files.write_hdf5, tensorflow_files.write_safetensors])
@pytest.mark.parametrize("task", [None, *TASKS])
def test_all_classes(task, write, tmp_path):
    model = model_of(task)
    keras_bert.save(model, tmp_path, format="huggingface")
    expected = weights_of(tmp_path, task)
    write(tmp_path)
    found = weights_of(tmp_path, task)
    assert found.keys() == expected.keys()
    for path, weight in expected.items():
        np.testing.assert_array_equal(found[path], weight)


def test_names_as_in_transformers():
    """These names and shapes are those of a file that `TFBertForPreTraining` wrote."""
    for name, shape, expected in (
        (
            "bert.embeddings.token_type_embeddings.weight", (2, 4),
            "bert/embeddings/token_type_embeddings/embeddings:0",
        ),
        (
            "bert.encoder.layer.0.attention.self.query.weight", (4, 4),
            "bert/encoder/layer_._0/attention/self/query/kernel:0",
        ),
        ("cls.predictions.bias", (9,), "mlm___cls/predictions/bias:0"),
        ("cls.seq_relationship.weight", (2, 4), "nsp___cls/seq_relationship/kernel:0"),
    ):  # fmt: skip
        found, _ = tensorflow_files.to_tensorflow(name, np.zeros(shape))
        assert found == expected


@pytest.mark.parametrize(
    "path",
    [
        "bert/bert/bert/pooler/dense/bias:0",
        "bert/tf_bert_model_3/bert/pooler/dense/bias:0",
        "tf_bert_model/model_1/tf_bert_model/bert/pooler/dense/bias:0",
    ],
)
def test_names_of_the_model_do_not_matter(path, tmp_path):
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file[path] = np.ones(3, np.float32)
    assert list(tensor_files.read(tmp_path / "tf_model.h5")) == ["bert/pooler/dense/bias:0"]


def test_damaged_files(tmp_path):
    keras_bert.save(heads.masked_lm(tiny.encoder()), tmp_path, format="huggingface")
    tensorflow_files.write_hdf5(tmp_path)
    file = tmp_path / "tf_model.h5"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="tf_model.h5: must be a complete HDF5 file"):
        keras_bert.load(tmp_path)
    file.write_bytes(content)
    copy = "mlm___cls/tf_bert_model_1/bert/embeddings/word_embeddings/weight:0"
    with h5py.File(file, "r+") as opened:
        opened[copy][0, 0] += 1
    with pytest.raises(ValueError, match="stored several times .*word_embeddings/weight:0"):
        keras_bert.load(tmp_path)
    with h5py.File(file, "r+") as opened:
        del opened[copy]
        opened["bert/x/bert/extra:0"] = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="unknown.*bert.extra"):
        keras_bert.load(tmp_path)
    with h5py.File(file, "r+") as opened:
        opened[copy] = h5py.ExternalLink("other.h5", "/weight")
    with pytest.raises(ValueError, match="has the link 'weight:0'"):
        keras_bert.load(tmp_path)
