"""The files beside the graph in the folder of an export, in the layout of Hugging Face."""

import dataclasses

from keras_bert import provenance
from keras_bert.checkpoints import (
    huggingface,
    huggingface_heads,
    sentence_transformers,
    tokenizer_json,
)
from keras_bert.checkpoints.folder import read_json, write_json
from keras_bert.exporting import graph_folder, graph_usage, model_card
from keras_bert.hub import conversion
from keras_bert.model_spec import HeadSpec
from keras_bert.model_structure import find_encoder, find_output, max_sequence_length


def write_descriptions(model, task, folder):
    """Write what the consumers read besides the graph, and what a pipeline reads."""
    name = graph_folder.ENCODER if task is None else task.name
    checkpoint = conversion.to_checkpoint(model)
    spec = checkpoint.spec
    if spec.head.task == "embedding":
        sentence_transformers.write_modules(spec, spec.head, checkpoint.weights, folder)
        spec = spec.without_head()
    # `write_modules` has written the pooling of an embedder; other models have none.
    spec = dataclasses.replace(spec, pooling=None)
    output = find_output(model)
    if output is not None:
        # A checkpoint leaves out labels that do not depend on its training data.
        spec = spec.with_head(labels=output.labels)
    architecture = huggingface_heads.architecture_of_task(spec.head.task)
    checkpoint = dataclasses.replace(checkpoint, spec=spec)
    huggingface.write_config_and_tokenizer(checkpoint, folder, architecture)
    description = graph_folder.describe(output, name)
    write_json(folder / graph_folder.DESCRIPTION_FILE, description)
    columns = provenance.known_columns(model)
    if columns:
        provenance.write_metrics(folder, {"columns": columns})
    encoder = find_encoder(model)
    file = folder / tokenizer_json.FILE
    if not file.is_file():
        return
    content = read_json(file)
    content["truncation"] = {
        "direction": "Right",
        "max_length": max_sequence_length(encoder),
        "strategy": "LongestFirst",
        "stride": 0,
    }
    content["padding"] = {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": encoder.preprocessor.python_tokenizer.special_ids.pad,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    write_json(file, content)


def write_card(job, name, graph, tensors, agreement):
    """Write `README.md`. `tensors` are those of `model_card.render`."""
    info = model_card.ModelInfo(
        job.output or HeadSpec(),
        "A BERT encoder.",
        "feature-extraction",
        parameters=job.model.count_params(),
        max_sequence_length=max_sequence_length(job.encoder),
        labels_file="`id2label` of `config.json`",
        metrics=job.metrics,
        license=job.license,
        precision=job.quantize or "float32",
        agreement=agreement,
    )
    usage = ""
    if job.encoder.preprocessor is not None:
        file = graph.file.relative_to(graph.folder).as_posix()
        usage = graph_usage.usage(job.model, job.task, job.format, file)
    text = model_card.render(name, info, {"Graph": tensors}, graph.folder, usage)
    (graph.folder / "README.md").write_text(text, encoding="utf-8", newline="\n")
