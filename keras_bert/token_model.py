"""The base class of encoders and heads, which rejects strings with the call to use instead."""

import re

import keras


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenModel(keras.Model):
    """A functional model from token ids. Strings in place of token ids are a `ValueError`."""

    def __call__(self, inputs, *args, **options):
        self._refuse_strings(inputs)
        return super().__call__(inputs, *args, **options)

    def fit(self, x=None, *args, **options):
        self._refuse_strings(x)
        return super().fit(x, *args, **options)

    def evaluate(self, x=None, *args, **options):
        self._refuse_strings(x)
        return super().evaluate(x, *args, **options)

    def predict(self, x, *args, **options):
        self._refuse_strings(x)
        return super().predict(x, *args, **options)

    def _refuse_strings(self, x):
        first = x[0] if isinstance(x, (list, tuple)) and len(x) else x
        # NumPy: "<U4", "|S4" or "object"; TensorFlow: "<dtype: 'string'>".
        dtype = str(getattr(first, "dtype", ""))
        if isinstance(first, (str, bytes)) or re.search(r"^.[US]\d|object|string", dtype):
            raise ValueError(
                f"{self.name!r} takes token ids, not strings. Call {self._call_for_strings}; to "
                "train, use keras_bert.finetune, or fit with Examples(...).to_dataset(model)"
            )

    @property
    def _call_for_strings(self):
        """The call that takes strings, for the error message."""
        return "keras_bert.pipeline(model)(texts)"
