"""Fields of protocol buffers that are not parsed."""

import pytest
from tensorflow.core.framework import graph_pb2

from keras_bert.untrusted import protobuf

GRAPH = graph_pb2.GraphDef.DESCRIPTOR
PATHS = ["node.op", "library.function.node_def.op", "library.function.signature.name"]


def graph():
    """A graph with two ops, and a function with one."""
    definition = graph_pb2.GraphDef()
    definition.node.add(name="a", op="Add", input=["x", "y"])
    definition.node.add(name="b", op="Mul").attr["T"].type = 1
    function = definition.library.function.add()
    function.signature.name = "f"
    function.node_def.add(name="c", op="Tanh")
    return definition.SerializeToString()


def test_values_of_a_path():
    found = protobuf.find(graph(), GRAPH, *PATHS)
    assert found == [{b"Add", b"Mul"}, {b"Tanh"}, {b"f"}]


def test_broken_messages_are_refused():
    content = graph()
    for end in range(1, len(content)):
        for broken in (content[:end], content[:end] + b"\xff" * 20):
            try:
                protobuf.find(broken, GRAPH, *PATHS)
            except ValueError:
                continue
            graph_pb2.GraphDef.FromString(broken)  # the end of a field
    for broken in (b"\x0b", b"\x0c", b"\x0f", b"\x80" * 20, b"\x0a\xff\xff\xff\xff\x7f", b"\x09a"):
        with pytest.raises(ValueError, match="field|number"):
            protobuf.find(broken, GRAPH, *PATHS)
