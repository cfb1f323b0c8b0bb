"""All uses of Keras' private methods and attributes.

No other module of this package may use them. `tests/test_keras_private.py` names each one and
fails if a new version of Keras removes it or changes its signature.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
from keras import ops
from keras.src.backend.common import global_state
from keras.src.backend.common.variables import AutocastScope
from keras.src.initializers.random_initializers import RandomInitializer
from keras.src.saving import saving_lib, serialization_lib

from keras_bert.runtime.escaping import shown

# Keras warns of variables without a gradient. A tagger, for example, does not use the pooler, so a
# warning about only the pooler is not shown.
UNUSED_POOLER = r"Gradients do not exist for variables \[('([^']*/)?pooler/dense/\w+'(, )?)+\]"


def all_layers(layer, include_self=True):
    """Return the layers nested in a layer, at any depth, and by default the layer itself."""
    return layer._flatten_layers(include_self=include_self)


def is_writing_hdf5():
    """Return True while Keras writes the config of a model to an HDF5 file (.h5)."""
    return bool(global_state.get_global_attribute("use_legacy_config"))


def direct_sublayers(layer):
    """Return the layers that a layer holds itself, without the layers inside these."""
    return layer._flatten_layers(include_self=False, recursive=False)


def _sublayers(layer, prefix=""):
    """Yield the path and the layer of the layers in a layer, at any depth."""
    for sublayer in direct_sublayers(layer):
        path = f"{prefix}{sublayer.name}"
        yield path, sublayer
        yield from _sublayers(sublayer, f"{path}/")


def copy_with_policy(layer, policy):
    """Return a layer with the variables of another layer, and copies of the layers in it.

    The copies have the dtype policy, except for quantized layers. They can only be called.
    """
    copy = object.__new__(type(layer))
    attributes = vars(copy)
    attributes.update(_with_copied_layers(vars(layer), policy))
    if "_modules" in attributes:  # torch keeps the layers in a dict of its own
        attributes["_modules"] = _with_copied_layers(attributes["_modules"], policy)
    is_map = isinstance(layer.dtype_policy, keras.dtype_policies.DTypePolicyMap)
    if layer.dtype_policy.quantization_mode is None and not is_map:
        copy.dtype_policy = policy
    return copy


def _with_copied_layers(attributes, policy):
    """Return a dict of attributes in which layers are replaced by copies."""
    return {
        name: copy_with_policy(value, policy) if isinstance(value, keras.layers.Layer) else value
        for name, value in attributes.items()
    }


def lora_layers(layer):
    """Return {path: [rank, alpha]} of the layers in a layer that have LoRA."""
    return {
        path: [sublayer.lora_rank, sublayer.lora_alpha]
        for path, sublayer in _sublayers(layer)
        if getattr(sublayer, "lora_enabled", False)
    }


def enable_lora(model, ranks):
    """Enable LoRA in the layers with these paths, as from `lora_layers`."""
    for path, (rank, alpha) in ranks.items():
        _find(model, path).enable_lora(rank, lora_alpha=alpha)


def restart_lora(model):
    """Set LoRA's first matrices to random values. Keras loads zeros, which cannot be trained.

    Keras saves a kernel with its LoRA matrices added, so the outputs stay as they are.
    """
    for layer in all_layers(model):
        for name in ("lora_kernel_a", "lora_embeddings_a"):
            variable = getattr(layer, name, None)
            if variable is not None:
                initializer = keras.initializers.HeUniform()
                variable.assign(initializer(variable.shape, variable.dtype))


def freeze_like(source, copy):
    """Set `trainable` of the layers and variables of a copy as in the source."""
    copy.trainable = source.trainable
    freeze(copy, frozen_parts(source))


class _CheckedVariables(list[keras.Variable]):
    """The list in which Keras collects variables without values, with a check of each."""

    def __init__(self, check: Callable[[keras.Variable], None]) -> None:
        super().__init__()
        self._check = check

    def append(self, variable: keras.Variable) -> None:
        self._check(variable)
        super().append(variable)


@contextlib.contextmanager
def variables_without_values(
    check: Callable[[keras.Variable], None],
) -> Iterator[list[keras.Variable]]:
    """Collect the variables that this block creates in a list, and give them no values.

    `check` is called with each variable. The variables take no memory.
    """
    attribute = "uninitialized_variables"
    outer_variables = global_state.get_global_attribute(attribute)
    variables = _CheckedVariables(check)
    global_state.set_global_attribute(attribute, variables)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield variables
    finally:
        global_state.set_global_attribute(attribute, outer_variables or [])


@contextlib.contextmanager
def variables_of_zeros(check: Callable[[keras.Variable], None]) -> Iterator[None]:
    """Give the variables that this block creates their values after the block: zeros, not random.

    `check` is called with each variable before the variable takes memory. If it raises an error, no
    variable of the block takes memory.
    """
    with variables_without_values(check) as variables:
        yield
    for variable in variables:
        is_random = isinstance(variable._initializer, RandomInitializer)
        # A file has no weights of LoRA, so these need their random values.
        if is_random and "lora" not in variable.name:
            variable._initializer = keras.initializers.Zeros()
        variable._deferred_initialize()


class _RecordingStore(saving_lib.H5IOStore):
    """Weights of a file, and the paths of the layers that were asked for."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, mode="r")
        self.paths: set[str] = set()

    def get(self, path: str) -> Any:
        self.paths.add(path)
        return super().get(path)


def load_state(model: keras.Model, weights: Path, assets: Path) -> set[str]:
    """Load the weights and the assets of the unpacked `.keras` file of a model.

    Return the paths of its layers in the file.
    """
    weights_store = _RecordingStore(weights)
    assets_store = saving_lib.DiskIOStore(str(assets), mode="r") if assets.is_dir() else None
    errors: dict[int, tuple[Any, Exception]] = {}
    failed: set[int] = set()
    with contextlib.closing(weights_store):
        saving_lib._load_state(
            model,
            weights_store=weights_store,
            assets_store=assets_store,
            inner_path="",
            visited_saveables=set(),
            failed_saveables=failed,
            error_msgs=errors,
        )
    if failed:
        layer, error = next(iter(errors.values()))
        raise ValueError(f"the weights of {layer.name} could not be loaded: {error}")
    return weights_store.paths


def accept_strings(layer):
    """Let a layer's `call` receive strings, lists and dicts as they are, without conversion."""
    layer._convert_input_args = False
    layer._allow_non_tensor_positional_args = True


def without_autocast():
    """Return a context in which a layer reads its variables in their own dtype."""
    return AutocastScope(None)


def update_loss(model, loss, rows):
    """Add the loss of a batch of `rows` rows, a scalar tensor, to the mean that `fit` shows."""
    model._loss_tracker.update_state(loss, sample_weight=rows)


def frozen_parts(layer, prefix=""):
    """Return the paths of what is not trainable in a layer: layers, and variables of others."""
    if not layer.trainable:
        return []
    variables = [variable for variable in layer._trainable_variables if not variable.trainable]
    paths = [f"{prefix}{variable.name}" for variable in variables]
    for sublayer in direct_sublayers(layer):
        path = f"{prefix}{sublayer.name}"
        if sublayer.trainable:
            paths += frozen_parts(sublayer, f"{path}/")
        elif sublayer.weights:
            paths.append(path)
    return paths


def freeze(model, paths):
    """Make the layers and variables with these paths, as from `frozen_parts`, not trainable."""
    for path in paths:
        _find(model, path).trainable = False


def _find(model, path):
    """Return the layer or the variable with a path."""
    part = model
    for name in path.split("/"):
        parts = [*direct_sublayers(part), *part._trainable_variables]
        part = next((each for each in parts if each.name == name), None)
        if part is None:
            raise ValueError(f"{model.name!r} has no layer or variable {shown(path)}")
    return part


def freeze_variables(model):
    """Freeze the variables of the layers that are not trainable. Keras loads them as trainable."""
    for layer in all_layers(model):
        if not layer.trainable:
            # Not `layer.trainable = False`: on TensorFlow, setting the same value does nothing.
            for sublayer in direct_sublayers(layer):
                sublayer.trainable = False
            for variable in layer.weights:
                variable.trainable = False


def has_value(array):
    """Return True for an array or a tensor with a value, False for a symbolic tensor."""
    if isinstance(array, keras.KerasTensor):
        return False
    try:
        ops.convert_to_numpy(array)
    except (NotImplementedError, TypeError):  # a tensor in a function that is being traced
        return False
    return True


def producing_operation(tensor):
    """Return the `keras.Operation` that produced a tensor, or `None` if it is not symbolic."""
    history = getattr(tensor, "_keras_history", None)
    return None if history is None else history.operation


def output_index(tensor):
    """Return the position of a symbolic tensor in the flat outputs of its operation."""
    return tensor._keras_history.tensor_index


def parent_tensors(tensor):
    """Return the `keras.KerasTensor`s that the operation of a symbolic tensor took as inputs."""
    history = tensor._keras_history
    return history.operation._inbound_nodes[history.node_index].input_tensors


def graph_calls(model):
    """Return the calls in a functional model, as pairs of an operation and its inputs.

    An input is a pair of the operation that produced it and its index among the flattened outputs.
    """
    calls = []
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            histories = [tensor._keras_history for tensor in node.input_tensors]
            inputs = [(history.operation, history.tensor_index) for history in histories]
            calls.append((node.operation, inputs))
    return calls


def used_outputs(model, layer):
    """Return the indices of a layer's flattened outputs that a functional model uses."""
    histories = [tensor._keras_history for tensor in keras.tree.flatten(model.output)]
    used = [(history.operation, history.tensor_index) for history in histories]
    for _, inputs in graph_calls(model):
        used.extend(inputs)
    return {index for operation, index in used if operation is layer}


def run_with(model, inputs, functions):
    """Run a functional model with functions in place of some of its layers.

    `inputs` has the keys of the model's inputs. `functions` is a dict from layers to functions with
    the same arguments. All other layers are called with `training=False`, even if the model calls
    them with another value.
    """

    def replace(operation):
        if operation in functions:
            return functions[operation]
        if not isinstance(operation, keras.layers.Layer):
            return operation
        return lambda *args, **options: operation(*args, **{**options, "training": False})

    return model._run_through_graph(inputs, replace)


@contextlib.contextmanager
def restore_variables_on_error(model, trains=False):
    """Restore a model's variables if its `fit`, `evaluate` or `predict` fails on JAX.

    Keras empties the variables during these calls, and an error leaves them empty. `trains` is True
    for `fit`, which also empties the variables of the optimizer.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    variables = [*model.variables, *model.metrics_variables]
    optimizer = getattr(model, "optimizer", None)
    if trains and optimizer is not None:
        if not optimizer.built:  # `fit` would build it and empty its variables
            optimizer.build(model.trainable_variables)
        variables += optimizer.variables
    values = [variable._value for variable in variables]
    try:
        yield
    except BaseException:
        model.jax_state_sync()  # the state after the last complete step
        for variable, value in zip(variables, values, strict=True):
            # JAX frees the old arrays when a step ends, so skip freed ones.
            if variable._value is None and value is not None and not value.is_deleted():
                variable._value = value
        raise


def replace_value(variable, value):
    """Make a Keras variable use another backend variable, without copying it.

    `value` is, for example, a `tf.Variable` of the same shape and dtype.
    """
    variable._value = value


def in_safe_mode():
    """Return the safe mode (a bool) in which Keras is loading a model, or `None` if it is not."""
    return serialization_lib.in_safe_mode()


def last_learning_rate(optimizer):
    """Return the learning rate of the most recent batch, a float.

    The optimizer has a learning rate schedule, or is a `LossScaleOptimizer` around such an
    optimizer. Batches that a `LossScaleOptimizer` skipped are not counted.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    # `iterations` counts optimizer steps, and the schedule counts batches. The conversion to
    # NumPy also accepts the variable of a distribution strategy.
    batches = int(ops.convert_to_numpy(optimizer._iterations))
    return float(optimizer._learning_rate(max(0, batches - 1)))


class BertOptimizerMixin(keras.optimizers.Optimizer):
    """Common parts of `AdamW` and `Lamb`: weight decay, clipping and Adam's moments.

    A subclass implements `step_scalars` and `update_step(gradient, variable, scalars)`.
    """

    _known_norm: Any = None  # the global norm of the gradients that are being applied

    def step_scalars(self, learning_rate):
        """Return the scalar tensors that `update_step` needs, computed once per step."""
        raise NotImplementedError

    def has_decay(self, variable):
        """Return True if weight decay applies to a variable.

        It does not apply to biases, LayerNorm and variables in `exclude_from_weight_decay`.
        """
        if len(variable.shape) < 2 or variable.name == "bias":
            return False
        return self._use_weight_decay(variable)

    def bias_corrections(self):
        """Return the divisors of Adam's bias correction, for both moments."""
        step = ops.cast(self.iterations + 1, keras.config.floatx())
        return tuple(1 - ops.power(beta, step) for beta in (self.beta_1, self.beta_2))

    def update_moments(self, gradient, variable):
        """Update Adam's first and second moment of a variable and return them."""
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        first = self._momentums[index]
        second = self._velocities[index]
        self.assign_add(first, (gradient - first) * (1 - self.beta_1))
        self.assign_add(second, (ops.square(gradient) - second) * (1 - self.beta_2))
        return first, second

    def apply_with_norm(self, grads, trainable_variables, global_norm):
        """Apply gradients whose global norm is known. Accumulated gradients have another norm."""
        self._known_norm = None if self.gradient_accumulation_steps else global_norm
        try:
            self.apply(grads, trainable_variables)
        finally:
            self._known_norm = None

    def apply(self, grads, trainable_variables=None):
        """Apply the gradients, without a warning if the model does not use the pooler."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=UNUSED_POOLER)
            return super().apply(grads, trainable_variables)

    def _apply_weight_decay(self, variables):
        """Do nothing: `update_step` applies the decay, with a rate computed once per step."""

    def _clip_gradients(self, grads):
        # TensorFlow's gradient of an embedding lists rows, and a row can occur more than once.
        # Keras squares each occurrence; the sum of the occurrences must be squared.
        grads = _all_dense(grads)
        # Under a TensorFlow strategy, Keras clips the gradients of each replica and then sums
        # them, so the result depends on the number of replicas. Sum them before clipping.
        # With one replica there is nothing to sum, and TensorFlow would keep the graph of the step,
        # and with it the weights, until the process ends.
        all_reduce = getattr(super(), "_all_reduce_sum_gradients", None)
        if all_reduce is not None and self._distribution_strategy.num_replicas_in_sync > 1:
            grads = [grad for grad, _ in all_reduce([(grad, None) for grad in grads])]
        if self._known_norm is not None and self.global_clipnorm:
            scale = self.global_clipnorm / ops.maximum(self._known_norm, self.global_clipnorm)
            return [grad * ops.cast(scale, grad.dtype) for grad in grads]
        return super()._clip_gradients(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        """Do nothing: `_clip_gradients` has summed them."""
        return grads_and_vars

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Pass `step_scalars` to `update_step` in place of the learning rate."""
        scalars = self.step_scalars(learning_rate)
        super()._backend_update_step(grads, trainable_variables, scalars)


@keras.saving.register_keras_serializable(package="keras_bert")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer` that also sees overflows of the embeddings.

    TensorFlow's gradient of an embedding lists rows, and a row can occur more than once. Keras
    checks only the last occurrence of a row, and not the sum, which may be infinite in float16.
    """

    def apply(self, grads, trainable_variables=None):
        super().apply(_all_dense(grads), trainable_variables)


def _all_dense(gradients):
    """Convert TensorFlow's gradients of embeddings to tensors; other gradients stay."""
    # Only `tf.IndexedSlices` has this attribute.
    return [
        _dense(gradient) if hasattr(gradient, "dense_shape") else gradient for gradient in gradients
    ]


def _dense(gradient):
    """Convert TensorFlow's gradient of an embedding to a tensor; add rows with the same index."""
    # The shape of a variable of a SavedModel can be unknown.
    is_known = gradient.shape.is_fully_defined()
    shape = gradient.shape if is_known else gradient.dense_shape
    return ops.add(gradient, ops.zeros(shape, gradient.dtype))


def copy_weight_decay_exclusions(source, target):
    """Give an optimizer the variables that another one excludes from weight decay.

    The config of an optimizer does not hold them.
    """
    for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))
