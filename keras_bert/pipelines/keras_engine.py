"""Compute with a Keras model, for pipelines."""

from keras_bert import provenance
from keras_bert.exporting import export
from keras_bert.exporting.predict_function import predict_function
from keras_bert.hub import loading
from keras_bert.model_structure import find_encoder
from keras_bert.tasks import inference, registry


class KerasEngine:
    """A Keras model with its preprocessor. `precision` is as in `predict_function`."""

    def __init__(self, model, precision=None):
        self.model = model
        self.name = model.name
        self.task = registry.for_model(model)
        self.longest = find_encoder(model).bert_config["max_position_embeddings"]
        self.columns = provenance.columns_of_texts(model)
        self._predict = predict_function(model, precision)

    @property
    def described(self):
        """The `TaskModel`; users can change the preprocessor of the model."""
        return inference.describe(self.model)

    def outputs(self, encoded, *, batch_size, on_batch=None):
        outputs = inference.run(
            self.model, encoded, batch_size=batch_size, on_batch=on_batch, predict=self._predict
        )
        return self.task.activate(self.described.output, outputs)

    def export(self, path, **options):
        return export.export(self.model, path, **options)

    def save(self, path, **options):
        return loading.save(self.model, path, **options)
