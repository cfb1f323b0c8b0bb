"""The protocol buffers in TensorFlow's files, as far as they are read, without TensorFlow.

Other fields are skipped. The classes are in a pool of their own, because a process that also
imports TensorFlow has classes of the same names.

Source: tensorflow/core/protobuf/tensor_bundle.proto, trackable_object_graph.proto,
saved_model.proto, meta_graph.proto; tensorflow/core/framework/tensor_shape.proto, versions.proto,
graph.proto, function.proto, node_def.proto.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Message -> the fields that are read, as "number kind name". A star: repeated.
_MESSAGES = {
    "BundleHeaderProto": "1 int32 num_shards, 2 int32 endianness, 3 VersionDef version",
    "VersionDef": "2 int32 min_consumer",
    "BundleEntryProto": (
        "1 int32 dtype, 2 TensorShapeProto shape, 3 int32 shard_id, 4 int64 offset, 5 int64 size, "
        "6 fixed32 crc32c, 7 TensorSliceProto* slices"
    ),
    "TensorShapeProto": "2 Dim* dim, 3 bool unknown_rank",
    "Dim": "1 int64 size",
    "TensorSliceProto": "",
    "TrackableObjectGraph": "1 TrackableObject* nodes",
    "TrackableObject": "1 ObjectReference* children, 2 SerializedTensor* attributes",
    "ObjectReference": "1 int32 node_id, 2 string local_name",
    "SerializedTensor": "1 string name, 2 string full_name, 3 string checkpoint_key",
    "SavedModel": "2 MetaGraphDef* meta_graphs",
    "MetaGraphDef": "2 GraphDef graph_def",
    "GraphDef": "1 NodeDef* node, 2 FunctionDefLibrary library",
    "NodeDef": "2 string op",
    "FunctionDefLibrary": "1 FunctionDef* function",
    "FunctionDef": "3 NodeDef* node_def",
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    """Return the messages as a parsed .proto file."""
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="tensorflow_messages.proto", package="tensorflow", syntax="proto3"
    )
    for message, fields in _MESSAGES.items():
        proto = file.message_type.add(name=message)
        for text in filter(None, fields.split(", ")):
            number, kind, name = text.split()
            is_repeated = kind.endswith("*")
            kind = kind.removesuffix("*")
            field = proto.field.add(name=name, number=int(number))
            field.label = field_type.LABEL_REPEATED if is_repeated else field_type.LABEL_OPTIONAL
            if kind in _MESSAGES:
                field.type = field_type.TYPE_MESSAGE
                field.type_name = f".tensorflow.{kind}"
            else:
                field.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(_file().SerializeToString())


def _class(message: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"tensorflow.{message}"))


BundleHeaderProto = _class("BundleHeaderProto")
BundleEntryProto = _class("BundleEntryProto")
TrackableObjectGraph = _class("TrackableObjectGraph")
SavedModel = _class("SavedModel")
