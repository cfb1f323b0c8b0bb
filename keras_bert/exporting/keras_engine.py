"""Compute with a Keras model, for pipelines."""

import hashlib
import time

import keras
import numpy as np

from keras_bert import provenance
from keras_bert.exporting import export
from keras_bert.hub import loading
from keras_bert.model_structure import find_encoder, path_of_diverged_weight
from keras_bert.tasks import inference, registry
from keras_bert.tasks.forward_pass import forward_pass


class KerasEngine:
    """A Keras model with its preprocessor. `precision` is as in `forward_pass`.

    Attributes:
        seconds: Time that the model has taken.
    """

    def __init__(self, model, precision=None):
        self.model = model
        self.name = model.name
        self.task = registry.for_model(model)
        self.longest = find_encoder(model).bert_config["max_position_embeddings"]
        self.columns = provenance.columns_of_texts(provenance.known_columns(model))
        self.seconds = 0.0
        self._precision = precision
        self._predict = forward_pass(model, precision)

    def __getstate__(self):
        return {**vars(self), "_predict": None}  # programs cannot be pickled

    def __setstate__(self, state):
        vars(self).update(state)
        self._predict = forward_pass(self.model, self._precision)

    @property
    def described(self):
        """The `TaskModel`; users can change the preprocessor of the model."""
        return inference.describe(self.model)

    def with_logits(self):
        return KerasEngine(self.task.model_of_logits(self.model), self._precision)

    def digest(self):
        settings = (
            provenance.digest_of_weights(self.model),
            self.model.get_config(),  # the pooling and the layers after it
            find_encoder(self.model).preprocessor.vocabulary,
            self._precision,
        )
        return hashlib.sha256(repr(settings).encode()).digest()

    def outputs(self, encoded, *, batch_size, on_batch=None):
        start = time.perf_counter()
        outputs = inference.run(
            self.model,
            encoded,
            batch_size=batch_size,
            on_batch=on_batch,
            on_outputs=self._check_outputs,
            predict=self._predict,
        )
        self.seconds += time.perf_counter() - start
        return self.task.activate(self.described.output, outputs)

    def _check_outputs(self, outputs):
        """Raise a `ValueError` if the outputs of a batch contain NaN."""
        if any(np.isnan(array).any() for array in keras.tree.flatten(outputs)):
            raise ValueError(self._reason_for_nan())

    def _reason_for_nan(self):
        """Return why the outputs contain NaN, and what to do."""
        path = path_of_diverged_weight(self.model.variables)
        if path is not None:
            return (
                f"{self.name!r} returned NaN, because its weight {path} is damaged. Load or train "
                "the model again"
            )
        dtype = self._precision or find_encoder(self.model).compute_dtype
        remedy = "Load or train the model again"
        if dtype == "float16":
            remedy = "Use precision='float32' or 'bfloat16', which hold larger numbers"
        return f"{self.name!r} returned NaN in {dtype}. {remedy}"

    def export(self, path, **options):
        return export.export(self.model, path, **options)

    def save(self, path, **options):
        return loading.save(self.model, path, **options)
