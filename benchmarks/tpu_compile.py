"""Question: does the pretraining step fit a TPU v5e? It is compiled for one; no TPU is needed.

    pip install jax libtpu keras     # JAX and libtpu of matching versions, no TensorFlow
    KERAS_BACKEND=jax python benchmarks/tpu_compile.py

The script prints a row for each case, with the chip memory that the compiled program needs
(weights, optimizer and peak of the activations) and its collectives. It exits with 1 if a case
does not fit.
"""

import argparse
import dataclasses
import os
import re
import sys
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
# This process computes nothing. Its virtual CPU devices represent the devices of the layout.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
# Otherwise the compiler queries the metadata server of Google Cloud.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
# Without a chip, several processes may load libtpu at once.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

MEMORY = 16 * 2**30  # bytes, of a v5e chip
SIZES = {"tiny": (2, 128, 2), "base": (12, 768, 12), "large": (24, 1024, 16)}


@dataclasses.dataclass(frozen=True)
class Case:
    """A train step. The batch is the total over all chips, without gradient accumulation."""

    size: str
    length: int
    batch: int
    model_parallel: int = 1
    rematerialize: bool = False
    packed: bool = False


CASES = (
    Case("base", 128, 256),
    Case("base", 128, 1024),
    Case("base", 512, 64),
    Case("base", 512, 128, rematerialize=True),
    Case("large", 128, 128),
    Case("large", 128, 256, rematerialize=True),
    Case("large", 512, 32, rematerialize=True),
    Case("large", 128, 128, model_parallel=2),
    Case("base", 512, 64, packed=True),
)


def chips_of(topology="v5e:2x2"):
    """Return the chips of a topology, named as in `jax.experimental.topologies`."""
    from jax.experimental import topologies

    return topologies.get_topology_desc(topology, platform="tpu").devices


def compile_step(case, chips, **options):
    """Compile the step of a case for chips.

    Args:
        case: A `Case`.
        chips: Devices of JAX, which need not exist.
        **options: Options of XLA's compiler.

    Returns:
        The compiled step of JAX.
    """
    import jax
    import keras
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import keras_bert
    from keras_bert import heads, optimizers, packed_heads
    from keras_bert.layers import without_initial_weights
    from keras_bert.pretraining import train
    from keras_bert.runtime import distribution

    keras.backend.clear_session()
    shape = (len(chips) // case.model_parallel, case.model_parallel)
    mesh = Mesh(np.array(chips).reshape(shape), ("batch", "model"))
    layers, hidden, attention_heads = SIZES[case.size]
    with without_initial_weights(keras.initializers.Zeros()):
        encoder = keras_bert.BertEncoder(
            vocab_size=30522,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=attention_heads,
            intermediate_size=4 * hidden,
            max_position_embeddings=512,
            dtype="mixed_bfloat16",
            rematerialize=case.rematerialize,
        )
        model = heads.pretraining(encoder)
    if case.packed:
        model = packed_heads.packed_pretraining(model)
    train.compile_model(model, optimizers.adamw(1e-4, total_steps=1_000_000, warmup_steps=10_000))
    batch = _batch(case)
    model._symbolic_build(data_batch=batch)
    split = {}
    if case.model_parallel > 1:
        stand_ins = keras.distribution.list_devices("cpu")
        layout = distribution._model_parallel(stand_ins, case.model_parallel)
        for variable in model.trainable_variables:
            # The optimizer's moments have the path and the layout of their weight.
            axes = layout.get_variable_layout(variable).axes
            split[variable.path.replace("/", "_")] = axes

    def of_variable(variable):
        name = variable.path.removeprefix(model.optimizer.name + "/").replace("/", "_")
        axes = next((axes for key, axes in split.items() if name.startswith(key)), ())
        axes = axes if len(axes) == len(variable.shape) else ()
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=sharding)

    state = tuple(
        [of_variable(variable) for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    rows = NamedSharding(mesh, PartitionSpec("batch"))
    data = keras.tree.map_structure(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows), batch
    )
    outputs = keras.tree.map_structure(lambda leaf: leaf.sharding, state)
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=(None, outputs))
    return step.lower(state, data).compile(options or None)


def _batch(case):
    import numpy as np

    predictions, texts = -(-15 * case.length // 100), max(4, case.length // 16)
    keys = ["input_word_ids", "input_type_ids"]
    keys += ["position_ids", "text_ids"] if case.packed else ["input_mask"]
    inputs = {key: np.zeros((case.batch, case.length), "int32") for key in keys}
    if case.packed:
        predictions += texts // 2
        inputs["cls_positions"] = np.zeros((case.batch, texts), "int32")
    inputs["masked_lm_positions"] = np.zeros((case.batch, predictions), "int32")
    shapes = {
        "masked_lm": (case.batch, predictions),
        "next_sentence": (case.batch, texts) if case.packed else (case.batch,),
    }
    targets = {key: np.zeros(shape, "int32") for key, shape in shapes.items()}
    weights = {key: np.ones(shape, "float32") for key, shape in shapes.items()}
    return inputs, targets, weights


def needed(compiled):
    """Return the peak memory of a compiled step on one chip, in bytes."""
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes
        - memory.alias_size_in_bytes
    )


def collectives(compiled):
    """Return a dict of the collectives in a compiled step and their counts."""
    text = compiled.as_text()
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    counts = {kind: len(re.findall(rf" {kind}(?:-start)?\(", text)) for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topology", default="v5e:2x2")
    parser.add_argument("--only", default=range(len(CASES)), type=int, nargs="+", metavar="ROW")
    parser.add_argument("--effort", type=float, default=0.0, help="effort of the compiler, -1 to 1")
    args = parser.parse_args()
    options = {"exec_time_optimization_effort": args.effort} if args.effort else {}
    import jax
    import keras

    chips = chips_of(args.topology)
    print(f"jax {jax.__version__}, keras {keras.__version__}, {args.topology}")
    print("| Model | Length | Batch | Chips | Options | GB a chip | Collectives | Compiled in |")
    print("|---|---|---|---|---|---|---|---|")
    fits = True
    for case in (CASES[row] for row in args.only):
        start = time.perf_counter()
        names = [name for name in ("rematerialize", "packed") if getattr(case, name)]
        names += [f"model parallel {case.model_parallel}"] * (case.model_parallel > 1)
        try:
            compiled = compile_step(case, chips, **options)
        except jax.errors.JaxRuntimeError as error:  # for example, the program is too large
            fits = False
            print(f"| {case.size} | {case.length} | {case.batch} | | {', '.join(names)} | "
                  f"{str(error).splitlines()[0]:.120} | | |", flush=True)  # fmt: skip
            continue
        size = needed(compiled)
        fits = fits and size < MEMORY
        found = ", ".join(f"{count} {kind}" for kind, count in collectives(compiled).items())
        print(f"| {case.size} | {case.length} | {case.batch} | {len(chips)} | {', '.join(names)} | "
              f"{size / 2**30:.1f} | {found} | {time.perf_counter() - start:.0f} s |",
              flush=True)  # fmt: skip
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
