"""Compute with a LiteRT graph, to compare an export with its model."""

import numpy as np

from keras_bert.exporting import graph_folder
from keras_bert.runtime.packages import import_extra


class LiteRtSession:
    """A `graph_session.Session` of LiteRT.

    The graph is one that this process has just made. A graph of a stranger would need checks.
    """

    tokens_per_batch: int | None = None
    parallel_batches = 1

    def __init__(self, file):
        module = import_extra("ai_edge_litert.interpreter", "litert", "this format")
        content = file.read_bytes()
        self._interpreter = module.Interpreter(model_content=content)  # the runner needs it
        self._runner = self._interpreter.get_signature_runner()
        self.digest = graph_folder.digest_of_graph(content)
        self.inputs = list(self._runner.get_input_details())
        shape_per_output = {
            name: details["shape_signature"].tolist()
            for name, details in self._runner.get_output_details().items()
        }
        self.widths = {
            name: shape[-1] if shape[-1] > 0 else None for name, shape in shape_per_output.items()
        }
        self.ranks = {name: len(shape) for name, shape in shape_per_output.items()}
        self.file = file

    def run(self, batches, names):
        for index, inputs in enumerate(batches):
            outputs = self._runner(**graph_folder.graph_inputs(inputs, self.inputs, np.int32))
            yield index, inputs, [outputs[name] for name in names]
