"""Our classes of TensorFlow's messages against TensorFlow's own, in one process."""

import pytest
from google.protobuf import descriptor
from tensorflow.core.protobuf import saved_model_pb2, tensor_bundle_pb2, trackable_object_graph_pb2

from keras_bert.untrusted import tensorflow_messages

THEIRS = {
    "BundleHeaderProto": tensor_bundle_pb2.BundleHeaderProto,
    "BundleEntryProto": tensor_bundle_pb2.BundleEntryProto,
    "TrackableObjectGraph": trackable_object_graph_pb2.TrackableObjectGraph,
    "SavedModel": saved_model_pb2.SavedModel,
}


def assert_same_fields(ours, theirs):
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        assert (field.number, field.is_repeated) == (other.number, other.is_repeated)
        if field.message_type:
            assert_same_fields(field.message_type, other.message_type)
        elif other.type == descriptor.FieldDescriptor.TYPE_ENUM:
            assert field.type == descriptor.FieldDescriptor.TYPE_INT32
        else:
            assert field.type == other.type


@pytest.mark.parametrize("name", THEIRS)
def test_fields(name):
    ours = getattr(tensorflow_messages, name)
    assert ours.DESCRIPTOR.fields
    assert_same_fields(ours.DESCRIPTOR, THEIRS[name].DESCRIPTOR)
