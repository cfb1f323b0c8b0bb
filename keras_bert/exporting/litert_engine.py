"""Compute with a LiteRT graph, to compare int8 with float32."""

import time

from keras_bert.exporting import graph_folder, graph_outputs
from keras_bert.runtime.packages import import_extra
from keras_bert.tasks import inference


class LiteRtEngine:
    """What a pipeline computes with: the LiteRT graph of a model.

    The graph is one that this process has just made. A graph of a stranger would need checks.

    Args:
        model: The Keras model.
        task: Its `Task`.
        content: The bytes of the LiteRT file.
        names: Names of the outputs to read.

    Attributes:
        seconds: Time that the graph has taken.
    """

    # As a `graph_session.Session`.
    tokens_per_batch = None
    parallel_batches = 1

    def __init__(self, model, task, content, names):
        module = import_extra("ai_edge_litert.interpreter", "litert", "dev")
        self._runner = module.Interpreter(model_content=content).get_signature_runner()
        self._names = names
        self.widths = dict.fromkeys(names)
        self.task = task
        self.name = model.name
        self.file = model.name
        self.described = inference.describe(model)
        self.longest = self.described.max_length
        self.columns: dict[str, str] = {}
        self.seconds = 0.0

    def outputs(self, encoded, *, batch_size, on_batch=None):
        start = time.perf_counter()
        # The graph takes the positions of [MASK], as the graphs of old ONNX folders do.
        outputs = graph_outputs.compute(
            self, encoded, self._names, is_old=True, batch_size=batch_size, on_batch=on_batch
        )
        self.seconds += time.perf_counter() - start
        if self._names == ["probabilities"]:
            return outputs
        return self.task.activate(self.described.output, outputs)

    def run(self, batches, names):
        """Compute batches, as `graph_session.Session.run`."""
        for index, batch in enumerate(batches):
            inputs = {graph_folder.INPUTS.get(name, name): ids for name, ids in batch.items()}
            outputs = self._runner(**inputs)
            yield index, [outputs[name] for name in names]
