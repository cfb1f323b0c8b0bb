"""A SavedModel in a model folder of TensorFlow Serving, as the driver of exports writes it."""

import os
import tempfile

import tensorflow as tf

from keras_bert.exporting import model_card, tf_serving
from keras_bert.exporting.model_card import ModelInfo
from keras_bert.exporting.model_comparison import Sample
from keras_bert.tasks.keras_predictor import KerasPredictor


class SavedModelFolder:
    """The next version of a SavedModel in a model folder.

    Attributes:
        parent: The model folder. TensorFlow Serving ignores folders in it whose name is not a
            number.
    """

    def __init__(self, job, parent, module, functions, assets, sample, **facts):
        """Store what the steps need.

        Args:
            job: The `export.Job`.
            parent: The model folder.
            module: The `tf.Module`, or another trackable object.
            functions: Its signatures, a dict of `tf.function`s.
            assets: Name of an attribute of the module -> function that writes a file into a folder,
                and returns its path.
            sample: Function of the loaded SavedModel that returns a `model_comparison.Sample`.
            **facts: Those of `model_card.ModelInfo`.
        """
        self._job = job
        self.parent = parent
        self._module = module
        self._functions = functions
        self._assets = assets
        self._sample = sample
        self._facts = facts

    def write(self, folder):
        with tempfile.TemporaryDirectory() as assets:
            for name, write in self._assets.items():
                setattr(self._module, name, tf.saved_model.Asset(str(write(assets))))
            tf.saved_model.save(self._module, str(folder), signatures=self._functions)

    def samples(self, folder):
        """Load the SavedModel once, and return the sample on which it is compared."""
        return [self._sample(tf.saved_model.load(str(folder)))]

    def predictors(self, folder):
        """Return the predictors in bfloat16 and in float32."""
        return [KerasPredictor(self._job.model, name) for name in ("bfloat16", "float32")]

    def finish(self, folder, agreement):
        """Move the SavedModel to the next version, write the files beside it; return its path."""
        inputs = self._functions["serving_default"].input_signature
        tf_serving.write_warmup(folder, inputs)
        taken = [int(entry.name) for entry in self.parent.iterdir() if entry.name.isdecimal()]
        version = self.parent / str(max(taken, default=0) + 1)
        os.rename(folder, version)
        tf_serving.write_settings(self.parent, inputs)
        info = ModelInfo(agreement=agreement, license=self._job.license, **self._facts)
        model_card.write(version, info, self._functions)
        return version


def signature_sample(loaded, inputs, compute, **options):
    """Return the `Sample` of the signature `serving_default` of a loaded SavedModel.

    `compute` is the model's function of a dict of tensors.
    """

    def arrays(function):
        outputs = function({name: tf.constant(array) for name, array in inputs.items()})
        return {name: output.numpy() for name, output in outputs.items()}

    def serve(tensors):
        return loaded.signatures["serving_default"](**tensors)

    return Sample(inputs, lambda inputs: arrays(serve), lambda inputs: arrays(compute), **options)
