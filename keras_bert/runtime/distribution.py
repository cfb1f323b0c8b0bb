"""Training on one device, several devices, a TPU or several machines.

The strategy is a `tf.distribute.Strategy` on TensorFlow and a `keras.distribution` on JAX. A model
must be built within `scope` to train on several devices.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert.runtime import processor
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import first_line

__all__ = ["scope"]

STRATEGIES = ("auto", "one-device", "mirrored", "multi-worker", "tpu")
_COUNT, _INDEX = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"


@contextlib.contextmanager
def scope(name: str = "auto", *, model_parallel: int = 1) -> Iterator[Any]:
    """Build models within this context for the devices that a name selects.

    Args:
        name: One of these strategies:

            - `"one-device"`: on JAX also within another scope.
            - `"mirrored"`: all devices of this machine.
            - `"multi-worker"`: all devices of several machines that run the same program, on JAX.
            - `"tpu"`, or on TensorFlow `"tpu:NAME"` for a Cloud TPU of that name.
            - `"auto"`: the TPU if the environment names one or TensorFlow sees one, else all
              GPUs of this machine (on JAX, all devices).
        model_parallel: On JAX, number of devices of one machine that share the weights of each
            block, for models that do not fit on one device.

    Yields:
        The `tf.distribute.Strategy` or `keras.distribution.Distribution`. `None` for
        `"one-device"`, and for `"auto"` if there is one device.

    Raises:
        ValueError: The name is unknown, the devices do not exist, their number is not divisible
            by `model_parallel`, or a strategy of TensorFlow is active already.

    Example:

    >>> with scope("one-device") as strategy:
    ...     print(strategy)
    None
    """
    kind, _, address = name.partition(":")
    if kind not in STRATEGIES or (address and kind != "tpu"):
        raise ValueError(
            f"the strategy must be one of {', '.join(STRATEGIES)}, or tpu:NAME; received {name!r}"
        )
    backend = keras.backend.backend()
    if model_parallel != 1 and (backend != "jax" or kind == "one-device"):
        raise ValueError("model_parallel needs several devices and KERAS_BACKEND=jax")
    if backend == "tensorflow":
        strategy = _tensorflow_strategy(kind, address)
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            yield strategy
    elif backend == "jax":
        if address:
            raise ValueError(
                f"{name} is a name for TensorFlow; with JAX, run the program on the TPU's own VM "
                "and use tpu"
            )
        strategy = _jax_distribution(kind, model_parallel)
        before = keras.distribution.distribution()
        keras.distribution.set_distribution(strategy)
        try:
            yield strategy
        finally:
            keras.distribution.set_distribution(before)
    elif kind == "one-device" or (kind == "auto" and backend == "torch"):
        yield None
    else:
        raise ValueError(f"{backend} supports only one-device; set KERAS_BACKEND=jax")


def _tensorflow_strategy(kind, address):
    import tensorflow as tf

    if tf.distribute.has_strategy():
        # TensorFlow cannot return to its default strategy within a scope.
        active = type(tf.distribute.get_strategy()).__name__
        raise ValueError(
            f"scope({kind!r}) cannot be entered while {active} is active; leave its scope first"
        )
    if kind == "one-device":
        return None
    if kind == "multi-worker":
        # `fit` fails at the first batch because it cannot convert a dict of distributed inputs.
        raise ValueError(
            "Keras 3 cannot train with TensorFlow's multi-worker strategy; set KERAS_BACKEND=jax"
        )
    if kind == "tpu" or (kind == "auto" and _has_tpu()):
        return _tpu_strategy(address)
    gpus = tf.config.list_logical_devices("GPU")
    devices = gpus or tf.config.list_logical_devices("CPU")
    if kind == "auto" and len(gpus) < 2:
        return None
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _has_tpu():
    import tensorflow as tf

    named = any(name in os.environ for name in ("TPU_NAME", "COLAB_TPU_ADDR"))
    return named or bool(tf.config.list_physical_devices("TPU"))


def _tpu_strategy(address):
    import tensorflow as tf

    where = address or os.environ.get("TPU_NAME") or "local"
    if "COLAB_TPU_ADDR" in os.environ or "COLAB_RELEASE_TAG" in os.environ:
        raise ValueError(
            "TensorFlow in Colab's TPU runtime cannot use the TPU; set KERAS_BACKEND=jax before "
            "you import Keras"
        )
    if where == "local" and not _has_tpu_chip():
        raise ValueError("this machine has no TPU; name a Cloud TPU with tpu:NAME or TPU_NAME")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=where)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        remedy = ""
        # The package `tensorflow`, not `tensorflow-tpu`.
        if "ConfigureDistributedTPU" in str(error):
            remedy = "; this TensorFlow was built without TPUs, so set KERAS_BACKEND=jax"
        raise ValueError(
            f"the TPU {where!r} cannot be reached: {first_line(error):.300}{remedy}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _has_tpu_chip():
    return os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio/0")


def _jax_distribution(kind, model_parallel):
    if kind == "one-device":
        return None
    import jax

    if kind == "tpu" and jax.default_backend() != "tpu":
        raise ValueError(
            f"JAX sees no TPU, only {jax.default_backend()}; pip install 'jax[tpu]' on a machine "
            "with a TPU"
        )
    if kind == "multi-worker" and not jax.distributed.is_initialized():
        _join_cluster()
    devices = keras.distribution.list_devices()
    if model_parallel != 1:
        if jax.process_count() != 1 or len(devices) % model_parallel:
            raise ValueError(
                f"model_parallel must divide the {len(devices)} devices of one machine; received "
                f"{model_parallel}"
            )
        return _model_parallel(devices, model_parallel)
    if kind == "auto" and len(devices) < 2:
        return None
    return keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)


def _join_cluster():
    # JAX detects SLURM, Open MPI, Kubernetes and Cloud TPUs. Elsewhere, JAX reads only the address
    # from the environment.
    import jax

    variables = {"num_processes": _COUNT, "process_id": _INDEX}
    options: dict[str, Any] = {
        key: _integer_of_variable(name) for key, name in variables.items() if name in os.environ
    }
    try:
        jax.distributed.initialize(**options)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"multi-worker cannot start: {first_line(error)}. Set JAX_COORDINATOR_ADDRESS, "
            f"{_COUNT} and {_INDEX}, and enter the scope before JAX is used"
        ) from error


def _integer_of_variable(name):
    """Return the integer in an environment variable."""
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"the environment variable {name} must be an integer; received {shown(text)}"
        ) from None


def _model_parallel(devices, count):
    """Split input projections by columns and output projections by rows, as Megatron does."""
    # The fused query, key and value kernel is not split: the parts would cut across heads, and XLA
    # would exchange activations in each layer. XLA still computes each head on one device, because
    # the output projection of the attention is split.
    mesh = keras.distribution.DeviceMesh(
        (len(devices) // count, count), ("batch", "model"), devices
    )
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*attention/output/kernel"] = ("model", None)
    layout[".*intermediate/kernel"] = (None, "model")
    layout[".*intermediate/bias"] = ("model",)
    layout[".*layer_[0-9]+/output/kernel"] = ("model", None)
    return keras.distribution.ModelParallel(
        layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
    )


def _strategy():
    """Return the strategy of the current scope, or `None`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    return keras.distribution.distribution()


def gather_replicas(*tensors):
    """Concatenate tensors over the replicas of a TensorFlow strategy, along their first axis.

    Args:
        *tensors: Tensors with the same first axis, of numbers that float32 can represent.

    Returns:
        A tuple `(select, *tensors)`: a function that returns this replica's rows of a gathered
        tensor, and the gathered tensors. With one replica, and on JAX, they do not change.

    Example:

    >>> select, values = gather_replicas(keras.ops.arange(3))
    >>> tuple(select(values).shape)
    (3,)
    """
    context = _replica_context()
    if context is None:
        return lambda tensor: tensor, *tensors
    import tensorflow as tf

    # One collective operation, since the order of several could differ between the replicas.
    rows = tf.shape(tensors[0])[0]
    columns = [tf.reshape(tf.cast(tensor, tf.float32), (rows, -1)) for tensor in tensors]
    replica = tf.cast(context.replica_id_in_sync_group, tf.float32)
    columns.insert(0, tf.fill((rows, 1), replica))
    gathered = context.all_gather(tf.concat(columns, axis=1), axis=0)
    is_own = tf.equal(gathered[:, 0], replica)
    sizes = [tf.shape(column)[1] for column in columns]
    parts = tf.split(gathered, sizes, axis=1)[1:]
    of_all_replicas = [
        tf.ensure_shape(
            tf.cast(tf.reshape(part, tf.concat([[-1], tf.shape(tensor)[1:]], 0)), tensor.dtype),
            [None, *tensor.shape[1:]],
        )
        for part, tensor in zip(parts, tensors, strict=True)
    ]
    return lambda tensor: tf.boolean_mask(tensor, is_own), *of_all_replicas


def seed_of_replica(seed):
    """Return a seed that differs between the replicas of a TensorFlow strategy.

    All replicas have the same state of a `SeedGenerator`, so they would draw the same numbers.

    Args:
        seed: A seed of `keras.random.SeedGenerator`, integers (2,).

    Example:

    >>> seed = keras.ops.array([1, 2])
    >>> seed_of_replica(seed) is seed  # one replica
    True
    """
    context = _replica_context()
    if context is None:
        return seed
    import tensorflow as tf

    return seed + tf.cast(context.replica_id_in_sync_group, seed.dtype)


def _replica_context():
    """Return the context of one of several replicas of a TensorFlow strategy, or `None`."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    return context


def split_batch(arrays):
    """Put the arrays of a batch on the devices of the current JAX strategy.

    Each device gets an equal part of the rows.

    Args:
        arrays: A dict of arrays whose number of rows is a multiple of `replicas()`.

    Returns:
        A dict of arrays of JAX; without a strategy, `arrays` themselves.

    Example:

    >>> batch = {"ids": keras.ops.ones((4, 8))}
    >>> split_batch(batch) is batch  # no strategy
    True
    """
    strategy = _strategy()
    if strategy is None:
        return arrays
    import jax

    def split(array):
        return jax.device_put(array, strategy.get_data_layout(array.shape).backend_layout)

    return keras.tree.map_structure(split, arrays)


def replicas():
    """Return the number of parts into which the current strategy splits a batch."""
    strategy = _strategy()
    if strategy is None:
        return 1
    if keras.backend.backend() == "tensorflow":
        return strategy.num_replicas_in_sync
    mesh = strategy.device_mesh
    return mesh.shape[mesh.axis_names.index(strategy.batch_dim_name)]


def devices():
    """Return the number of devices of the current strategy."""
    strategy = _strategy()
    if strategy is None or keras.backend.backend() == "tensorflow":
        return replicas()
    return strategy.device_mesh.devices.size


def check_created_here(model):
    """Raise an error if the weights of a model do not belong to the current strategy.

    Raises:
        ValueError: If the model was created outside of the strategy's scope, or if no strategy is
            active and the weights are on several devices.
    """
    if all(_is_created_here(weight.value) for weight in model.weights):
        return
    if _strategy() is None:
        raise ValueError(
            "the model was created in a distribution.scope of several devices; train it within "
            "that scope, or save it and load it outside of the scope"
        )
    raise ValueError(
        "the model was created outside of this distribution.scope; create or load it within "
        "the scope that trains it"
    )


def _is_created_here(value):
    """Return True if the value of a weight is on the devices of the current strategy."""
    backend = keras.backend.backend()
    if backend == "jax":
        return len(value.sharding.device_set) == devices()
    if backend != "tensorflow":
        return True
    strategy = _strategy()
    if strategy is not None:
        return strategy.extended.variable_created_in_scope(value)
    import tensorflow as tf

    return not isinstance(value, tf.distribute.DistributedValues) or len(value.values) == 1


def worker():
    """Return the index of this process and the number of processes that train together."""
    if keras.backend.backend() == "jax" and _strategy() is not None:
        import jax

        return jax.process_index(), jax.process_count()
    return 0, 1


def supports_jit_compile():
    """Return True if `compile(jit_compile=True)` works under the current strategy.

    It does not work under strategies of TensorFlow. TPUs always compile.
    """
    backend = keras.backend.backend()
    return backend == "jax" or (backend == "tensorflow" and _strategy() is None)


def compiles_each_shape():
    """Return True if each shape of a batch costs a compilation, on JAX and on TPUs."""
    backend = keras.backend.backend()
    return backend == "jax" or (backend == "tensorflow" and _has_tpu())


def has_accelerator():
    """Return True if the backend computes on a GPU or a TPU."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend() != "cpu"
    if backend == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow as tf

    return any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


def is_tensorflow_on_cpu():
    """Return True if the backend is TensorFlow and it sees no accelerator."""
    return keras.backend.backend() == "tensorflow" and not has_accelerator()


def positions_per_compilation():
    """Return about how many positions a device computes in the time of a compilation.

    It is the same number for training and for inference: training takes three times as long, and so
    does its compilation. An H100 computes about 5 million positions of MiniLM per second.
    """
    return 5_000_000 if has_accelerator() else 10_000


def is_faster_in_bfloat16():
    """Return True if `mixed_training` trains faster in bfloat16 than Keras does in float32.

    This is the case on a CPU with instructions for bfloat16, with one replica of TensorFlow.
    """
    return is_tensorflow_on_cpu() and supports_jit_compile() and processor.has_bfloat16()


def fastest_dtype():
    """Return the dtype policy with which training is fastest here.

    It is `"mixed_bfloat16"` where the device computes in bfloat16, `"mixed_float16"` on older GPUs
    of NVIDIA, and `"float32"` otherwise.
    """
    if not has_accelerator():
        return "mixed_bfloat16" if is_faster_in_bfloat16() else "float32"
    capability = _compute_capability()
    return "mixed_bfloat16" if capability is None or capability >= (8, 0) else "mixed_float16"


def _compute_capability():
    """Return NVIDIA's version of a GPU's instructions, such as (9, 0); `None` for other devices."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        version = str(getattr(jax.devices()[0], "compute_capability", ""))
        is_nvidia = re.fullmatch(r"\d+\.\d+", version)
        return tuple(map(int, version.split("."))) if is_nvidia else None
    if backend == "torch":
        import torch

        return torch.cuda.get_device_capability()
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None
    return tf.config.experimental.get_device_details(gpus[0]).get("compute_capability")


def check_accumulation(batches):
    """Raise ValueError if Keras cannot accumulate gradients over `batches` batches per step.

    Keras updates the weights in a branch, and replicas of `MirroredStrategy` cannot synchronize
    inside a branch.
    """
    if batches == 1 or keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if isinstance(tf.distribute.get_strategy(), tf.distribute.MirroredStrategy):
        raise ValueError(
            "Keras cannot accumulate gradients under MirroredStrategy; use smaller batches or "
            "set KERAS_BACKEND=jax"
        )


def check_same_step(step):
    """Raise ValueError unless all processes that train together resume from the same step."""
    if worker()[1] == 1:
        return
    from jax.experimental import multihost_utils

    steps = multihost_utils.process_allgather(step).tolist()
    if len(set(steps)) > 1:
        raise ValueError(
            f"the processes would resume from different steps, {steps}; use a folder that all of "
            "them share"
        )
