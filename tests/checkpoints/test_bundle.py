"""Finding TensorFlow checkpoints in a folder. test_google.py reads their tensors."""

import pytest

from keras_bert.checkpoints import bundle


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"..._CHECKPOINTABLE_OBJECT_GRAPH...", True), (b"...bert/pooler/dense/bias...", False)],
)
def test_an_object_based_checkpoint_is_recognized_by_its_index(tmp_path, content, expected):
    (tmp_path / "a.index").write_bytes(content)
    assert bundle.holds_graph(tmp_path) is expected


def test_a_folder_without_an_index_holds_no_graph(tmp_path):
    assert bundle.holds_graph(tmp_path) is False
