"""One program for one device, several, a TPU, and several machines.

On TensorFlow a `tf.distribute.Strategy`, on JAX a `keras.distribution`. A model that is to be
trained on several devices is made within `scope`; `pretraining` and Keras do the rest.
"""

import contextlib
import os
import typing

import keras

STRATEGIES = ("auto", "one-device", "mirrored", "multi-worker", "tpu")
_COUNT, _INDEX = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"


@contextlib.contextmanager
def scope(name="auto", *, model_parallel=1):
    """Within it, models are made for the devices that a name stands for.

    Args:
        name: `"one-device"`; `"mirrored"`: all devices of this machine; `"multi-worker"`: those of
            several machines, each of which runs the same program, on JAX; `"tpu"`, or
            `"tpu:NAME"` for a Cloud TPU of that name; `"auto"`: the TPU that the environment
            names or TensorFlow sees, else all devices of this machine if there are several, else
            the one.
        model_parallel: on JAX, devices of one machine among which a block's work and three
            quarters of its weights are split, for models that one device cannot hold.

    Yields:
        The `tf.distribute.Strategy` or `keras.distribution.Distribution`; `None` for one device.

    Raises:
        ValueError: another name, what it stands for is not there, or its devices cannot be
            divided by `model_parallel`.

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
    if model_parallel < 1:
        raise ValueError(f"model_parallel must be at least 1; received {model_parallel}")
    if kind == "one-device" and model_parallel != 1:
        raise ValueError("model_parallel needs several devices; received one-device")
    backend = keras.backend.backend()
    if kind == "one-device":
        yield None
    elif backend == "tensorflow":
        if model_parallel != 1:
            raise ValueError("model_parallel needs the JAX backend: set KERAS_BACKEND=jax")
        strategy = _tensorflow_strategy(kind, address)
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            yield strategy
    elif backend == "jax":
        strategy = _jax_distribution(kind, address, model_parallel)
        before = keras.distribution.distribution()
        keras.distribution.set_distribution(strategy)
        try:
            yield strategy
        finally:
            keras.distribution.set_distribution(before)
    elif kind == "auto":
        yield None
    else:
        raise ValueError(f"the {backend} backend knows one-device only; received {name!r}")


def _tensorflow_strategy(kind, address):
    import tensorflow as tf

    if kind == "multi-worker":
        # Its `fit` fails at the first batch: it cannot convert the parts of a dict of inputs.
        raise ValueError(
            "Keras 3 does not train under TensorFlow's multi-worker strategy; set "
            "KERAS_BACKEND=jax, where multi-worker works"
        )
    if kind == "tpu" or (kind == "auto" and _tpu_is_near()):
        return _tpu_strategy(address)
    gpus = tf.config.list_logical_devices("GPU")
    devices = gpus or tf.config.list_logical_devices("CPU")
    if kind == "auto" and len(gpus) < 2:
        return None
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _tpu_is_near():
    import tensorflow as tf

    named = any(name in os.environ for name in ("TPU_NAME", "COLAB_TPU_ADDR"))
    return named or bool(tf.config.list_physical_devices("TPU"))


def _tpu_strategy(address):
    import tensorflow as tf

    where = address or os.environ.get("TPU_NAME") or "local"
    if "COLAB_TPU_ADDR" in os.environ or "COLAB_RELEASE_TAG" in os.environ:
        raise ValueError(
            "Colab's TPU runtime has no TensorFlow that knows its TPU; set KERAS_BACKEND=jax "
            "before Keras is imported"
        )
    if where == "local" and not _has_tpu_chip():
        raise ValueError(
            "there is no TPU in this machine (no /dev/accel0, no /dev/vfio); name a Cloud TPU "
            "with tpu:NAME or TPU_NAME, or take another strategy"
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=where)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise ValueError(f"the TPU {where!r} cannot be reached: {reason:.300}") from error
    return tf.distribute.TPUStrategy(resolver)


def _has_tpu_chip():
    return os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio/0")


def _jax_distribution(kind, address, model_parallel):
    import jax

    if kind == "tpu":
        if address:
            raise ValueError("with JAX this program runs on the TPU's own machines: take tpu")
        if jax.default_backend() != "tpu":
            raise ValueError(
                f"JAX sees no TPU here, only {jax.default_backend()}; pip install 'jax[tpu]' on a "
                "machine that has one"
            )
    if kind == "multi-worker" and not jax.distributed.is_initialized():
        _join_cluster()
    devices = keras.distribution.list_devices()
    if model_parallel != 1:
        if jax.process_count() != 1:
            raise ValueError(
                "model_parallel works within one machine; received several: leave it at 1"
            )
        if len(devices) % model_parallel:
            raise ValueError(
                f"model_parallel must divide the {len(devices)} devices; received {model_parallel}"
            )
        return _model_parallel(devices, model_parallel)
    if kind == "auto" and len(devices) < 2:
        return None
    return keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)


def _join_cluster():
    """Finds the other processes as JAX does, or by variables of the environment.

    SLURM, Open MPI, Kubernetes and Cloud TPUs tell JAX all it needs; elsewhere JAX reads the
    address alone.
    """
    import jax

    given: dict[str, typing.Any] = {}
    for key, variable in (("num_processes", _COUNT), ("process_id", _INDEX)):
        value = os.environ.get(variable)
        if value is not None:
            if not value.isdecimal():
                raise ValueError(f"{variable} must be a number; received {value!r}")
            given[key] = int(value)
    try:
        jax.distributed.initialize(**given)
    except ValueError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ValueError(
            f"multi-worker finds no cluster ({reason}); set JAX_COORDINATOR_ADDRESS, {_COUNT} and "
            f"{_INDEX}"
        ) from error
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"multi-worker cannot begin: {reason}") from error


def _model_parallel(devices, count):
    """Megatron's split: what a block reads with by columns, what it writes with by rows.

    The three matrices of attention in one are whole on each device, as are the embeddings: cut,
    their pieces lie across heads, and XLA sends vectors to and fro at each layer. It computes each
    device's heads with its own columns nevertheless, since the matrix behind them is cut.
    """
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
    """The strategy whose scope this is, or `None`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    return keras.distribution.distribution()


def replicas():
    """Shares into which the strategy in force cuts a batch.

    Example:

    >>> replicas()
    1
    """
    strategy = _strategy()
    if strategy is None:
        return 1
    if keras.backend.backend() == "tensorflow":
        return strategy.num_replicas_in_sync
    mesh = strategy.device_mesh
    return mesh.shape[mesh.axis_names.index(strategy.batch_dim_name)]


def devices():
    """Devices that the strategy in force computes on.

    Example:

    >>> devices()
    1
    """
    strategy = _strategy()
    if strategy is None or keras.backend.backend() == "tensorflow":
        return replicas()
    return strategy.device_mesh.devices.size


def worker():
    """This process among those that train together: (index, number).

    Example:

    >>> worker()
    (0, 1)
    """
    if keras.backend.backend() == "jax" and _strategy() is not None:
        import jax

        return jax.process_index(), jax.process_count()
    return 0, 1


def compiles():
    """Whether Keras can have steps compiled by XLA: not around a strategy of TensorFlow's.

    (What a TPU runs is compiled, whoever asks for it.)

    Example:

    >>> compiles()
    True
    """
    backend = keras.backend.backend()
    return backend == "jax" or (backend == "tensorflow" and _strategy() is None)


def check_accumulation(batches):
    """Raises where Keras cannot average the gradients of several batches.

    It chooses between a step and none in a branch, and `MirroredStrategy` lets replicas meet
    outside of branches alone.

    Args:
        batches: that make up a step.

    Raises:
        ValueError: more than one under that strategy.

    Example:

    >>> check_accumulation(4)
    """
    if batches == 1 or keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if isinstance(tf.distribute.get_strategy(), tf.distribute.MirroredStrategy):
        raise ValueError(
            "gradients cannot be accumulated under MirroredStrategy, in Keras 3 on TensorFlow; "
            "take smaller batches, or KERAS_BACKEND=jax"
        )


def agree(number):
    """Raises unless all processes that train together have the same number.

    Args:
        number: an int, such as the step to go on from.

    Raises:
        ValueError: another process has another one.

    Example:

    >>> agree(5)
    """
    if worker()[1] == 1:
        return
    from jax.experimental import multihost_utils

    numbers = multihost_utils.process_allgather(number).tolist()
    if len(set(numbers)) > 1:
        raise ValueError(
            f"the processes would go on from different steps, {', '.join(map(str, numbers))}: "
            "their folder must be on a disk that all of them share"
        )
