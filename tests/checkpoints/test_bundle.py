"""Finding TensorFlow checkpoints in a folder. test_google.py reads their tensors."""

import pathlib
import time

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


@pytest.mark.parametrize("content", [b"\x0a\x00", b"\x0a\x02\x0a\x00", b"\x7a\x00"])
def test_an_object_graph_of_many_messages_is_not_parsed(content):
    """Nodes, children, unknown fields: each takes hundreds of bytes after parsing."""
    content *= 5_000_000
    broken = bundle.Bundle(pathlib.Path("a"), {bundle.GRAPH: ()}, lambda _: content)
    start = time.process_time()
    with pytest.raises(ValueError, match="must be an object graph, received more than .* fields"):
        bundle.read_graph(broken)
    assert time.process_time() - start < 5
