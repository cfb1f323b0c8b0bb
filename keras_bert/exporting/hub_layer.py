"""A reusable SavedModel as a layer of Keras 3 that can be trained, saved and reloaded."""

import pathlib
import shutil
import tempfile
import weakref

import keras

from keras_bert import keras_internals
from keras_bert.exporting import allowed_ops
from keras_bert.runtime.reading import one_line
from keras_bert.runtime.terminal import printable

_MODEL_FOLDER = "saved_model"  # in the assets of a `.keras` file
_RUNS_CODE = (
    "the model contains a SavedModel (HubLayer), which is a program: it can read and write your "
    "files and open connections as soon as it is loaded. If you trust its author, load the model "
    "with keras_bert.load(..., trusted=True), or with --trusted on the command line."
)


@keras.saving.register_keras_serializable(package="keras_bert")
class HubLayer(keras.layers.Layer):
    """Calls a SavedModel, and trains its variables in place.

    For what is made to be reused: the pair that `export` writes, the models of TF-Hub and Kaggle,
    the Model Garden's exports, a `tf.Module` of your own with a `__call__`. `hub.KerasLayer` does
    this for Keras 2 alone.

    A SavedModel is a program, which runs when it is loaded and called. So its graph may use only
    the ops in `keras_bert.exporting.allowed_ops`, unless you pass `trusted=True`. TF-Hub's
    preprocessors need that, since they use ops of tensorflow-text.

    The `.keras` file of a model holds the SavedModel too, so that it needs no other file. To load
    such a file, pass `trusted=True` to `keras_bert.load`, or `safe_mode=False` to
    `keras.saving.load_model`.

    Under `MirroredStrategy` make it within the strategy's scope, and map texts to ids in the
    dataset: there Keras' `fit` takes no strings.

    Source: the interface of reusable SavedModels, "Reusable SavedModels" in TensorFlow Hub's
    documentation.

    Args:
        path: folder of the SavedModel.
        trainable: whether its variables are trained.
        trusted: if True, skip the check of allowed ops.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: another backend than TensorFlow, no SavedModel there, one that cannot be
            called, or an op that needs `trusted=True`.

    Example:

    >>> import tensorflow as tf
    >>> module = tf.Module()
    >>> module.scale = tf.Variable(2.0)
    >>> module.__call__ = tf.function(
    ...     lambda x: module.scale * x, input_signature=[tf.TensorSpec([None, 3])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tf.saved_model.save(module, folder)
    ...     layer = HubLayer(folder)
    >>> x = keras.Input((3,))
    >>> keras.Model(x, layer(x)).count_params()
    1
    """

    def __init__(
        self, path=None, trainable=True, *, trusted=False, variables=None, outputs=None, **kwargs
    ):
        super().__init__(trainable=trainable, **kwargs)
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                "HubLayer runs TensorFlow graphs and needs KERAS_BACKEND=tensorflow; this process "
                f"runs {keras.backend.backend()}"
            )
        # Strings and dicts go in as they are, and XLA knows no strings.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.supports_jit = False
        self._loaded = self._takes_training = None
        self._folder = ""
        self._trusted = trusted
        self._outputs = outputs  # what a symbolic call gave, for a reload before its assets
        if path is not None:
            self._load(path)
            variables = _describe(self._loaded)
        elif variables is None:
            raise ValueError("HubLayer needs the folder of a SavedModel; received None")
        self._variables_config = variables
        self._shells = [
            self.add_weight(
                shape=item["shape"],
                dtype=item["dtype"],
                initializer="zeros",
                trainable=item["trainable"],
                name=item["name"],
            )
            for item in variables
        ]
        if path is not None:
            self._adopt(keep=False)
        self.built = True

    def _load(self, path):
        import tensorflow as tf

        path = pathlib.Path(path).expanduser()
        if not (path / "saved_model.pb").is_file():
            raise ValueError(f"{path} must be the folder of a SavedModel; it has no saved_model.pb")
        # A copy, so that the model can be saved when the original is gone.
        self._folder = tempfile.mkdtemp(prefix="keras_bert-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        allowed_ops.copy(path, self._folder)
        if not self._trusted:
            allowed_ops.check(self._folder)
        try:
            loaded = tf.saved_model.load(self._folder)
        except Exception as error:  # a broken SavedModel leads TensorFlow to any of them
            raise ValueError(
                f"TensorFlow cannot load the SavedModel {path}: {one_line(error)}"
            ) from error
        if not callable(loaded):
            signatures = ", ".join(printable(name, 200) for name in loaded.signatures)
            raise ValueError(
                f"{path} has only signatures ({signatures}), which are for serving and cannot be "
                "called as a layer. Export the encoder with keras_bert.export(encoder, path), or "
                "save a tf.Module that has a __call__ method."
            )
        # Past Keras, which would track the variables a second time.
        object.__setattr__(self, "_loaded", loaded)

    def _adopt(self, keep):
        """Makes our variables those of the SavedModel; `keep`: with the values of ours."""
        for shell, (variable, _) in zip(self._shells, _variables(self._loaded), strict=True):
            if keep:
                variable.assign(shell.value)
            keras_internals.replace_value(shell, variable)

    def call(self, inputs, training=False):
        """Returns what the SavedModel returns: a tensor, or a dict or list of tensors."""
        if self._loaded is None:
            raise ValueError(self._nothing_loaded())
        if self._takes_training is None:
            self._takes_training = _takes_training(self._loaded)
        options = {"training": bool(training)} if self._takes_training else {}
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
        if self._outputs is None:
            raise ValueError(self._nothing_loaded())
        return _to_spec(self._outputs)

    def _nothing_loaded(self):
        return f"{self.name!r} has no SavedModel: a config alone holds none"

    def save_assets(self, dir_path):
        shutil.copytree(self._folder, pathlib.Path(dir_path, _MODEL_FOLDER))

    def load_assets(self, dir_path):
        if not self._trusted:
            raise ValueError(_RUNS_CODE)
        self._load(pathlib.Path(dir_path, _MODEL_FOLDER))
        self._adopt(keep=True)

    def get_config(self):
        """Returns what a reload needs before it reads the assets: shapes, no path."""
        return {
            **super().get_config(),
            "variables": self._variables_config,
            "outputs": self._outputs,
        }

    @classmethod
    def from_config(cls, config):
        """Build the layer without its SavedModel, which `load_assets` reads.

        Raises:
            ValueError: If Keras is in safe mode, or the config holds 'path' or 'trusted'.
        """
        if "path" in config or "trusted" in config:
            raise ValueError(
                "the config of a HubLayer must not hold 'path' or 'trusted': the "
                "SavedModel is stored in the .keras file. Call keras_bert.HubLayer(path) instead."
            )
        safe_mode = keras_internals.in_safe_mode()
        if safe_mode:
            raise ValueError(_RUNS_CODE)
        return cls(**config, trusted=safe_mode is False)


def _variables(loaded):
    """Variables of a SavedModel with whether each is trained, in an order that stays."""
    trainable = {variable.ref() for variable in getattr(loaded, "trainable_variables", None) or ()}
    found = getattr(loaded, "variables", None)
    if found is None:
        call = loaded.__call__
        functions = getattr(call, "concrete_functions", None) or [call]
        found = {v.ref(): v for function in functions for v in function.variables}.values()
        trainable = {variable.ref() for variable in found if variable.trainable}
    # Some modules list a variable more than once.
    found = {variable.ref(): variable for variable in found}.values()
    return [(variable, variable.ref() in trainable) for variable in found]


def _describe(loaded):
    """The variables as a config holds them; names without slashes and the ":0" of graphs."""
    return [
        {
            "name": variable.name.partition(":")[0].replace("/", "_"),
            "shape": list(variable.shape),
            "dtype": variable.dtype.name,
            "trainable": trained,
        }
        for variable, trained in _variables(loaded)
    ]


def _takes_training(loaded):
    names = loaded.__call__.function_type.parameters if _is_typed(loaded) else ()
    if names:
        return "training" in names
    functions = getattr(loaded.__call__, "concrete_functions", ())
    return any("training" in str(function.structured_input_signature) for function in functions)


def _is_typed(loaded):
    return getattr(loaded.__call__, "function_type", None) is not None


def _to_spec(outputs):
    # Outputs may have these names, too, but are no strings.
    if isinstance(outputs, dict) and isinstance(outputs.get("dtype"), str):
        return keras.KerasTensor(outputs["shape"], dtype=outputs["dtype"])
    if isinstance(outputs, dict):
        return {key: _to_spec(value) for key, value in outputs.items()}
    return [_to_spec(value) for value in outputs]
