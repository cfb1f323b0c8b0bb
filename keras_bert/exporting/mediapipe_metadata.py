"""Metadata in a LiteRT file, with which MediaPipe's text tasks take strings.

The file of a FlatBuffer is followed by a zip archive with the vocabulary and the labels.

MediaPipe's tokenizer lower-cases only ASCII letters and keeps accents: with MiniLM, the scores of
19 of 2,000 texts of SST-2 and of 71 of 1,116 paragraphs of Wikipedia differ (mediapipe 1.2.3).
Uncased models of languages that are not written in ASCII get other ids.

Source: google-ai-edge/mediapipe, `tasks/metadata/metadata_schema.fbs` (the numbers of the fields).
"""

import io
import zipfile

import flatbuffers

from keras_bert.runtime.packages import import_extra

_KEY = "TFLITE_METADATA"
_IDENTIFIER = b"M001"
_MODEL_IDENTIFIER = b"TFL3"
_VERSION = "1.1.0"  # of the parser that reads the metadata
# Input of the graph -> the name by which MediaPipe finds it.
_INPUTS = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "segment_ids"}
_LABELS, _VOCABULARY = 2, 5  # types of files
_BERT_TOKENIZER = 4  # type of a process unit


def add(model: bytes, vocabulary: str, labels: list[str] | None) -> bytes:
    """Return a LiteRT file with metadata.

    Args:
        model: The file.
        vocabulary: Content of `vocab.txt`.
        labels: Labels of the output, for a classifier.
    """
    schema = import_extra("ai_edge_litert.schema_py_generated", "litert", "this format")
    files = {"vocab.txt": vocabulary}
    if labels is not None:
        files["labels.txt"] = "".join(f"{label}\n" for label in labels)
    content = schema.ModelT.InitFromPackedBuf(model)
    [signature] = content.signatureDefs
    name_of_tensor = {tensor.tensorIndex: tensor.name.decode() for tensor in signature.inputs}
    inputs = [name_of_tensor[index] for index in content.subgraphs[0].inputs]
    buffer = schema.BufferT()
    buffer.data = list(_metadata(inputs, labels is not None))
    content.buffers.append(buffer)
    entry = schema.MetadataT()
    entry.name = _KEY
    entry.buffer = len(content.buffers) - 1
    content.metadata = [*(content.metadata or []), entry]
    builder = flatbuffers.Builder(len(model))
    builder.Finish(content.Pack(builder), _MODEL_IDENTIFIER)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)
    return bytes(builder.Output()) + archive.getvalue()


def _metadata(inputs, has_labels):
    """Return a serialized `ModelMetadata`."""
    builder = flatbuffers.Builder(1024)
    tensors = [_table(builder, {0: _INPUTS[name]}) for name in inputs]
    vocabulary = _table(builder, {0: "vocab.txt", 2: _VOCABULARY})
    options = _table(builder, {0: _vector(builder, [vocabulary])})
    unit = _table(builder, {0: _BERT_TOKENIZER, 1: _Offset(options)})
    output = {0: "probability" if has_labels else "embedding"}
    if has_labels:
        labels = _table(builder, {0: "labels.txt", 2: _LABELS})
        output[6] = _vector(builder, [labels])
    output = _table(builder, output)
    graph = _table(
        builder,
        {
            2: _vector(builder, tensors),
            3: _vector(builder, [output]),
            5: _vector(builder, [unit]),
        },
    )
    model = _table(builder, {0: "BERT", 3: _vector(builder, [graph]), 7: _VERSION})
    builder.Finish(model, file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


class _Offset(int):
    """The place of a table or a vector in the buffer."""


def _table(builder, fields):
    """Add a table; return its offset. `fields` are strings, offsets and small integers."""
    values = {
        number: _Offset(builder.CreateString(value)) if isinstance(value, str) else value
        for number, value in fields.items()
    }
    builder.StartObject(max(values) + 1)
    for number, value in values.items():
        if isinstance(value, _Offset):
            builder.PrependUOffsetTRelativeSlot(number, value, 0)
        else:
            builder.PrependUint8Slot(number, value, 0)
    return _Offset(builder.EndObject())


def _vector(builder, offsets):
    """Add a vector of tables; return its offset."""
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return _Offset(builder.EndVector())
