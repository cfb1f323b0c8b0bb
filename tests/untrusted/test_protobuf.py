"""Limits of protocol buffers that are checked before they are parsed."""

import time

import pytest
from google.protobuf import struct_pb2
from tensorflow.core.framework import graph_pb2, tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from keras_bert.untrusted import protobuf
from tests.machine import slowness

GRAPH = graph_pb2.GraphDef.DESCRIPTOR


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
    nodes, functions, names = protobuf.find(
        graph(), GRAPH, "node.op", "library.function.node_def.op", "library.function.signature.name"
    )
    assert (nodes, functions, names) == ({b"Add", b"Mul"}, {b"Tanh"}, {b"f"})


def test_fields_of_inner_messages_count():
    content = graph()
    # node: name, op, input, input; node: name, op, attr: key, value: type; the library: function:
    # signature: name, node_def: name, op
    fields = (1 + 4) + (1 + 3 + 3) + (1 + 1 + 2 + 3)
    protobuf.check(content, GRAPH, fields)
    with pytest.raises(ValueError, match=f"more than {fields - 1} fields"):
        protobuf.check(content, GRAPH, fields - 1)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"\x0a\x00" * 10_000_000, trackable_object_graph_pb2.TrackableObjectGraph),
        (b"\x12\x00" * 10_000_000, saved_model_pb2.SavedModel),
        (b"\x08\x01" * 10_000_000, saved_model_pb2.SavedModel),  # numbers
        (b"\x7a\x00" * 10_000_000, saved_model_pb2.SavedModel),  # an unknown field
        (b"\x52\x80\xad\xe2\x04" + bytes(10_000_000), tensor_pb2.TensorProto),  # packed int64
    ],
)
def test_many_fields_are_refused_quickly(content, message):
    start = time.process_time()
    with pytest.raises(ValueError, match="more than 1048576 fields"):
        protobuf.check(content, message.DESCRIPTOR, 2**20)
    assert time.process_time() - start < 5 * slowness()


def test_packed_floats_and_bytes_are_not_counted():
    tensor = tensor_pb2.TensorProto(float_val=[1.0] * 1000, tensor_content=bytes(10_000))
    protobuf.check(tensor.SerializeToString(), tensor.DESCRIPTOR, 2)


def test_deep_messages_are_refused():
    value = struct_pb2.Value()
    inner = value
    for _ in range(60):  # two messages each
        inner = inner.list_value.values.add()
    with pytest.raises(ValueError, match="more than 100 messages inside each other"):
        protobuf.check(value.SerializeToString(), value.DESCRIPTOR)


def test_broken_messages_are_refused():
    content = graph()
    for end in range(1, len(content)):
        for broken in (content[:end], content[:end] + b"\xff" * 20):
            try:
                protobuf.check(broken, GRAPH)
            except ValueError:
                continue
            graph_pb2.GraphDef.FromString(broken)  # the end of a field
    for broken in (b"\x0b", b"\x0c", b"\x0f", b"\x80" * 20, b"\x0a\xff\xff\xff\xff\x7f", b"\x09a"):
        with pytest.raises(ValueError, match="field|number"):
            protobuf.check(broken, GRAPH)
