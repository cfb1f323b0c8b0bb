"""The base class of encoders and heads, which rejects strings with the call to use instead."""

import re

import keras

from keras_bert import keras_private
from keras_bert.runtime.arguments import is_dataframe


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenModel(keras.Model):
    """A functional model from token ids. Strings in place of token ids are a `ValueError`."""

    def __call__(self, inputs, *args, **options):
        self._refuse_strings(inputs)
        return super().__call__(inputs, *args, **options)

    def fit(self, x=None, *args, **options):
        self._refuse_strings(x)
        validation_data = options.get("validation_data")
        if isinstance(validation_data, (list, tuple)) and validation_data:
            self._refuse_strings(validation_data[0])
        with keras_private.restore_variables_on_error(self, trains=True):
            return super().fit(x, *args, **options)

    def evaluate(self, x=None, *args, **options):
        self._refuse_strings(x)
        with keras_private.restore_variables_on_error(self):
            return super().evaluate(x, *args, **options)

    def predict(self, x, *args, **options):
        self._refuse_strings(x)
        with keras_private.restore_variables_on_error(self):
            return super().predict(x, *args, **options)

    def save(self, filepath, *args, **options):
        if str(filepath).endswith((".h5", ".hdf5")):
            refuse_hdf5(self.name)
        return super().save(filepath, *args, **options)

    def _refuse_strings(self, x):
        if hasattr(x, "column_names"):  # a `datasets.Dataset`
            raise ValueError(
                f"{self.name!r} does not take a {type(x).__name__}. Read it with "
                "keras_bert.read(dataset, ...), then call to_dataset(model) on the result"
            )
        if _has_strings(getattr(x, "element_spec", x)):  # `element_spec` of a `tf.data.Dataset`
            raise ValueError(
                f"{self.name!r} takes token ids, not strings. Call {self._call_for_strings}; to "
                "train, use keras_bert.finetune, or fit with Examples(...).to_dataset(model)"
            )

    @property
    def _call_for_strings(self):
        """The call that takes strings, for the error message."""
        return "keras_bert.pipeline(model)(texts)"


def refuse_hdf5(name):
    """Raise a `ValueError`: an HDF5 file cannot hold a model's vocabulary and labels."""
    raise ValueError(
        f"{name!r} cannot be saved as HDF5 (.h5), which does not hold the vocabulary; save it as "
        ".keras"
    )


def _has_strings(x):
    """Return True for strings, tensors, tables and lists of strings, dicts of them, `Examples`."""
    if isinstance(x, (str, bytes)) or hasattr(x, "to_dataset"):
        return True
    if is_dataframe(x):
        return any(map(_is_string, x.dtypes))
    if isinstance(x, dict):
        return any(map(_has_strings, x.values()))
    if isinstance(x, (list, tuple)):
        return any(map(_has_strings, x[:1]))
    return _is_string(getattr(x, "dtype", ""))


def _is_string(dtype):
    # NumPy: "<U4", "|S4" or "object"; pandas: "str"; TensorFlow: "<dtype: 'string'>".
    return re.search(r"^.[US]\d|object|str", str(dtype)) is not None
