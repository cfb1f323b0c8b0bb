"""A Keras 3 layer that calls and trains a reusable SavedModel."""

import contextlib
import os
import pathlib
import shutil
import tempfile
import weakref
from typing import Any

import keras

from keras_bert import keras_private
from keras_bert.exporting import program

_MODEL_FOLDER = "saved_model"  # in the assets of a `.keras` file
_RUNS_CODE = (
    "the model contains a SavedModel (HubLayer), which is a program: it can read and write your "
    "files and open connections as soon as it is loaded. If you trust its author, load the model "
    "with keras_bert.load(..., trusted=True), or with --trusted on the command line."
)


@keras.saving.register_keras_serializable(package="keras_bert")
class HubLayer(keras.layers.Layer):
    """Call a reusable SavedModel as a trainable layer.

    It loads the SavedModels that `export` writes for an encoder, TF2 models of TF-Hub and Kaggle,
    exports of the Model Garden, and any `tf.Module` with a `__call__` method. `hub.KerasLayer`
    does the same for Keras 2.

    A SavedModel is a program, also one that `keras_bert.export` wrote. Pass `trusted=True` if you
    trust its author.

    The `.keras` file of a model contains the SavedModel. To load such a file, pass `trusted=True`
    to `keras_bert.load`, or `safe_mode=False` to `keras.saving.load_model`.

    With `MirroredStrategy`, create the layer within the strategy's scope, and map texts to ids in
    the dataset, because Keras' `fit` does not accept strings there.

    Source: "Reusable SavedModels" in the documentation of TensorFlow Hub.

    Args:
        path: Folder of the SavedModel.
        trainable: If True, train the variables that the SavedModel lists as trainable.
        trusted: Must be True: the SavedModel is a program, which runs with your rights.
        variables: Only for `from_config`: list of dicts that describe the variables.
        outputs: Only for `from_config`: shapes and dtypes of the outputs.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If the backend is not TensorFlow, if there is no SavedModel or it cannot be
            called, or without `trusted=True`.

    Example:

    >>> import tempfile
    >>> import tensorflow as tf
    >>> module = tf.Module()
    >>> module.scale = tf.Variable(2.0)
    >>> module.__call__ = tf.function(
    ...     lambda x: module.scale * x, input_signature=[tf.TensorSpec([None, 3])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tf.saved_model.save(module, folder)
    ...     layer = HubLayer(folder, trusted=True)
    >>> x = keras.Input((3,))
    >>> keras.Model(x, layer(x)).count_params()
    1
    """

    def __init__(
        self,
        path: str | os.PathLike | None = None,
        trainable: bool = True,
        *,
        trusted: bool = False,
        variables: Any = None,
        outputs: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, **kwargs)
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                "HubLayer runs TensorFlow graphs and needs KERAS_BACKEND=tensorflow; this process "
                f"runs {keras.backend.backend()}"
            )
        # Keras must not convert strings and dicts, and XLA does not support strings.
        keras_private.accept_strings(self)
        self.supports_jit = False
        self._loaded: Any = None
        self._folder = pathlib.Path()
        self._trusted = trusted
        # Specs for the symbolic calls that Keras makes between `from_config` and `load_assets`.
        self._outputs = outputs
        if path is not None:
            self._load(path)
            variables = _describe(self._loaded)
        self._variables_config = variables
        self._keras_variables = [self.add_weight(initializer="zeros", **item) for item in variables]
        if path is not None:
            self._share_variables(keep_values=False)
        self.built = True

    def _load(self, path):
        with contextlib.ExitStack() as temporary:
            # The model can be saved after the original folder is deleted.
            copy = tempfile.TemporaryDirectory(prefix="keras_bert-", ignore_cleanup_errors=True)
            self._folder = pathlib.Path(temporary.enter_context(copy))
            loaded = program.load(path, self._trusted, self._folder)
            if not callable(loaded):
                raise ValueError(
                    f"{path} has only signatures for serving. Export the encoder with "
                    "keras_bert.export(encoder, path), or save a tf.Module with a __call__ method"
                )
            # The graph may read its assets later.
            weakref.finalize(loaded, temporary.pop_all().close)
        # Bypass Keras' __setattr__, which would track the variables a second time.
        object.__setattr__(self, "_loaded", loaded)

    def _share_variables(self, keep_values):
        """Replace the arrays of the layer's variables by the variables of the SavedModel.

        `keep_values=True` keeps the layer's values, `False` the values of the SavedModel.
        """
        variables = _variables(self._loaded)
        for own, (variable, _) in zip(self._keras_variables, variables, strict=True):
            if keep_values:
                variable.assign(own.value)
            keras_private.replace_value(own, variable)

    def call(self, inputs, training=False):
        """Call the SavedModel with the tensor, dict or list of tensors that it expects.

        `training` is passed on if the SavedModel has this argument.
        """
        if self._loaded is None:
            raise ValueError("a copied HubLayer has no SavedModel. Create it from the folder")
        options = {"training": bool(training)} if _has_training_argument(self._loaded) else {}
        outputs = self._loaded(inputs, **options)
        if self.trainable:
            for loss in getattr(self._loaded, "regularization_losses", None) or ():
                self.add_loss(loss() if callable(loss) else loss)
        return outputs

    def compute_output_spec(self, inputs, training=False):
        if self._loaded is not None:
            spec = super().compute_output_spec(inputs, training=training)
            self._outputs = keras.tree.map_structure(
                lambda item: {"shape": list(item.shape), "dtype": item.dtype}, spec
            )
            return spec
        return _to_spec(self._outputs)

    def save_assets(self, dir_path):
        shutil.copytree(self._folder, pathlib.Path(dir_path, _MODEL_FOLDER))

    def load_assets(self, dir_path):
        if not self._trusted:
            raise ValueError(_RUNS_CODE)
        self._load(pathlib.Path(dir_path, _MODEL_FOLDER))
        self._share_variables(keep_values=True)

    def get_config(self):
        """Return the config: shapes and dtypes of variables and outputs, but no path."""
        return {
            **super().get_config(),
            "variables": self._variables_config,
            "outputs": self._outputs,
        }

    @classmethod
    def from_config(cls, config):
        """Create the layer without its SavedModel, which Keras then loads from the .keras file.

        Until then, the layer has variables with zeros, and only symbolic calls work. It raises a
        `ValueError` if Keras is in safe mode, or if the config holds 'path' or 'trusted'.
        """
        if "path" in config or "trusted" in config:
            raise ValueError("the config of a HubLayer must not hold 'path' or 'trusted'")
        safe_mode = keras_private.in_safe_mode()
        if safe_mode:
            raise ValueError(_RUNS_CODE)
        return cls(**config, trusted=safe_mode is False)


def _variables(loaded):
    """Return distinct pairs (variable, is trainable) of a SavedModel, in a stable order."""
    variables = getattr(loaded, "variables", None)
    if variables is not None:
        listed = getattr(loaded, "trainable_variables", None) or ()
        trainable = {variable.ref() for variable in listed}
    else:  # a plain `tf.Module`
        functions = getattr(loaded.__call__, "concrete_functions", None) or [loaded.__call__]
        variables = [variable for function in functions for variable in function.variables]
        trainable = {variable.ref() for variable in variables if variable.trainable}
    variables = {variable.ref(): variable for variable in variables}.values()
    return [(variable, variable.ref() in trainable) for variable in variables]


def _describe(loaded):
    """Return the configs of the variables. Names lose the slashes and the ":0" of graphs."""
    return [
        {
            "name": variable.name.partition(":")[0].replace("/", "_"),
            "shape": list(variable.shape),
            "dtype": variable.dtype.name,
            "trainable": is_trainable,
        }
        for variable, is_trainable in _variables(loaded)
    ]


def _has_training_argument(loaded):
    function_type = getattr(loaded.__call__, "function_type", None)
    if function_type is not None and function_type.parameters:
        return "training" in function_type.parameters
    functions = getattr(loaded.__call__, "concrete_functions", ())
    return any("training" in str(function.structured_input_signature) for function in functions)


def _to_spec(outputs):
    # A dict of outputs may have a key "dtype" too, but its value is not a string.
    if isinstance(outputs, dict) and isinstance(outputs.get("dtype"), str):
        return keras.KerasTensor(outputs["shape"], dtype=outputs["dtype"])
    if isinstance(outputs, dict):
        return {key: _to_spec(value) for key, value in outputs.items()}
    return [_to_spec(value) for value in outputs]
