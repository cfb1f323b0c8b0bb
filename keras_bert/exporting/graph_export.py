"""The folder of an ONNX, OpenVINO or LiteRT export, in the layout of Hugging Face."""

import numpy as np

from keras_bert.exporting import graph_files, graph_folder, model_comparison
from keras_bert.exporting.graph_folder import GraphFile
from keras_bert.exporting.graph_predictor import PROBABILITIES, GraphPredictor
from keras_bert.exporting.graph_session import open_session
from keras_bert.exporting.model_comparison import Sample
from keras_bert.runtime.arguments import check_is_new_folder

# Outputs of a Keras model -> names in a graph, if they differ.
NAMES = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "masked_lm": "prediction_logits",
    "next_sentence": "seq_relationship_logits",
}


def folders(job, graph):
    """Return the folder of an export whose graph is made by `graph(job)`."""
    check_is_new_folder(job.path)
    return [GraphFolder(job, graph(job))]


class GraphFolder:
    """A new folder with a graph of ids, and the files that a pipeline and other libraries read.

    `graph` writes the file of the graph; it has the attributes of `onnx_export.OnnxGraph`.

    Attributes:
        parent: The folder that holds the new one.
    """

    def __init__(self, job, graph):
        self._job = job
        self._graph = graph
        self._path = job.path.resolve()
        self.parent = self._path.parent

    def write(self, folder):
        """Write the graph in float32, and with `quantize` also that in 8 bits."""
        graph_files.write_descriptions(self._job.model, self._job.task, folder)
        float32 = self._file(folder, None)
        float32.file.parent.mkdir()
        self._graph.write(float32)
        if self._job.quantize:
            self._graph.quantize(float32, self._file(folder), self._job.dev)

    def samples(self, folder):
        """Open the graphs, and return the samples on which they are compared with the model."""
        inputs = model_comparison.sample_ids(self._job.model)
        if self._job.quantize:
            session = open_session(self._file(folder, None))
            yield Sample(inputs, self._outputs_of(self._open(folder)), None)
        else:
            session = self._open(folder)
        yield Sample(
            inputs,
            self._outputs_of(session),
            lambda inputs: self._expected(inputs, session),
            mask=inputs["input_mask"],
        )

    def predictors(self, folder):
        """Return the predictors of the graphs in 8 bits and in float32."""
        exported = GraphPredictor.open(self._file(folder))
        return exported, GraphPredictor.open(self._file(folder, None))

    def finish(self, folder, agreement):
        """Write the card, and move the folder to its place; return its path."""
        exported = self._file(folder)
        if self._job.quantize:
            float32 = self._file(folder, None).file
            float32.unlink()
            float32.with_suffix(".bin").unlink(missing_ok=True)
        preprocessor = self._job.encoder.preprocessor
        graph_folder.write_digests(exported, preprocessor and preprocessor.vocabulary)
        graph_files.write_card(self._job, self._path.name, exported, self._graph.tensors, agreement)
        if self._path.exists():
            self._path.rmdir()
        folder.rename(self._path)
        return self._path

    def _file(self, folder, *quantize):
        """Return the exported `GraphFile`, or that with another value of `quantize`."""
        [quantize] = quantize or [self._job.quantize]
        return GraphFile(folder / self._graph.files[quantize], folder)

    def _open(self, folder):
        """Return the session of the exported graph, that of a pipeline if there can be one."""
        exported = self._file(folder)
        if self._job.has_pipeline:
            return GraphPredictor.open(exported).session
        return open_session(exported)

    def _outputs_of(self, session):
        """Return a function that computes all outputs of a session by name."""

        def compute(inputs):
            names = list(session.widths)
            [(_, _, values)] = session.run([inputs], names)
            return dict(zip(names, values, strict=True))

        return compute

    def _expected(self, inputs, session):
        """Return the outputs of the model, by their names in the graph."""
        outputs = model_comparison.outputs_of(self._job.model, inputs)
        if "" not in outputs:
            return {NAMES.get(name, name): output for name, output in outputs.items()}
        if PROBABILITIES in session.widths:
            probabilities = self._job.task.activate(self._job.output, list(outputs[""]))
            return {PROBABILITIES: np.stack(probabilities)}
        [name] = self._job.task.graph_outputs
        return {name: outputs[""]}
