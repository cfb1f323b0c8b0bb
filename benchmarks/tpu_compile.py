"""Question: do training steps fit a TPU, and how long may they take? No TPU is needed.

    pip install '.[jax]' 'jax[tpu]'     # the libtpu that fits JAX; another one may fail for a v6e
    python benchmarks/tpu_compile.py
    python benchmarks/tpu_compile.py --chip v6e --task texts tags

Each step is compiled ahead of time for four chips, in mixed_bfloat16, with dropout 0.1. Nothing is
run. The script prints a row for each step:

- the memory that the compiled program needs on a chip: weights, optimizer and activations;
- the floating-point operations and the bytes that the program moves, from XLA's cost analysis;
- the roofline estimate of a step: its operations at the peak rate of the chip, or its bytes at the
  bandwidth of the memory, whichever takes longer. Nothing is measured. The utilization counts only
  the matmuls that the model needs (`keras_bert.training.flops`);
- the collectives.

For pretraining, the last lines compare chip-hours with those of `pod_plan.py`. The script exits
with 1 if a step does not fit.
"""

import argparse
import dataclasses
import os
import re
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
# This process computes nothing. Its virtual CPU devices represent the devices of the layout.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
# Otherwise the compiler queries the metadata server of Google Cloud.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
# Without a chip, several processes may load libtpu at once.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

VOCABULARY = 30522
SIZES = {"tiny": (2, 128, 2), "base": (12, 768, 12), "large": (24, 1024, 16)}


@dataclasses.dataclass(frozen=True)
class Chip:
    """Bytes of memory, bfloat16 operations per second, and bytes per second of a chip."""

    memory: float
    peak: float
    bandwidth: float


# Source: docs.cloud.google.com/tpu/docs/v5e and v6e.
CHIPS = {
    "v5e": Chip(memory=16 * 2**30, peak=197e12, bandwidth=819e9),
    "v6e": Chip(memory=32 * 2**30, peak=918e12, bandwidth=1638e9),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A train step. The batch is the total over all chips, without gradient accumulation.

    `batch` counts rows in pretraining, and texts, questions or pairs of texts in fine-tuning.
    """

    size: str
    length: int
    batch: int
    task: str = "pretraining"
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
    Case("base", 128, 256, "texts"),
    Case("base", 128, 256, "tags"),
    Case("base", 384, 64, "questions"),
    Case("base", 128, 256, "embeddings"),
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
        The compiled step of JAX, and the floating-point operations that the model needs.
    """
    import jax
    import keras
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    keras.backend.clear_session()
    shape = (len(chips) // case.model_parallel, case.model_parallel)
    mesh = Mesh(np.array(chips).reshape(shape), ("batch", "model"))
    model, batch, operations = _pretraining(case) if case.task == "pretraining" else _tuning(case)
    model._symbolic_build(data_batch=batch)
    split = _split_axes(case, model)

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
    return step.lower(state, data).compile(options or None), operations


def _split_axes(case, model):
    """Return the axes of the weights that model parallelism splits, by the weights' paths."""
    import keras

    from keras_bert.runtime import distribution

    if case.model_parallel == 1:
        return {}
    stand_ins = keras.distribution.list_devices("cpu")
    layout = distribution._model_parallel(stand_ins, case.model_parallel)
    # The optimizer's moments have the path and the layout of their weight.
    return {
        variable.path.replace("/", "_"): layout.get_variable_layout(variable).axes
        for variable in model.trainable_variables
    }


def _encoder(case, **options):
    """Return an encoder whose weights are zeros."""
    import keras

    import keras_bert
    from keras_bert.layers import without_initial_weights

    layers, hidden, attention_heads = SIZES[case.size]
    with without_initial_weights(keras.initializers.Zeros()):
        return keras_bert.BertEncoder(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=attention_heads,
            intermediate_size=4 * hidden,
            max_position_embeddings=512,
            dtype="mixed_bfloat16",
            rematerialize=case.rematerialize,
            **options,
        )


def _pretraining(case):
    """Return the compiled model of a pretraining case, a batch and the needed operations."""
    import keras

    from keras_bert import heads, optimizers, packed_heads
    from keras_bert.layers import without_initial_weights
    from keras_bert.pretraining import train
    from keras_bert.training import flops

    encoder = _encoder(case)
    with without_initial_weights(keras.initializers.Zeros()):
        model = heads.pretraining(encoder)
    if case.packed:
        model = packed_heads.packed_pretraining(model)
    train.compile_model(model, optimizers.adamw(1e-4, total_steps=1_000_000, warmup_steps=10_000))
    batch = _pretraining_batch(case)
    _, targets, _ = batch
    predictions = targets["masked_lm"].shape[1]
    texts = targets["next_sentence"].size // case.batch
    per_row = flops.of_sequence(encoder.bert_config, case.length, predictions, texts)
    return model, batch, case.batch * per_row


def _pretraining_batch(case):
    import numpy as np
    from paper_plan import predictions

    masked = predictions(case.length)
    texts = max(4, case.length // 16)
    keys = ["input_word_ids", "input_type_ids"]
    keys += ["position_ids", "text_ids"] if case.packed else ["input_mask"]
    inputs = {key: np.zeros((case.batch, case.length), "int32") for key in keys}
    if case.packed:
        masked += texts // 2
        inputs["cls_positions"] = np.zeros((case.batch, texts), "int32")
    inputs["masked_lm_positions"] = np.zeros((case.batch, masked), "int32")
    shapes = {
        "masked_lm": (case.batch, masked),
        "next_sentence": (case.batch, texts) if case.packed else (case.batch,),
    }
    targets = {key: np.zeros(shape, "int32") for key, shape in shapes.items()}
    weights = {key: np.ones(shape, "float32") for key, shape in shapes.items()}
    return inputs, targets, weights


def _tuning(case):
    """Return the compiled model of a fine-tuning case, a batch and the needed operations.

    The batch is the first one that `finetune` would make, for four devices.
    """
    from keras_bert import Preprocessor, heads, optimizers
    from keras_bert.runtime import distribution
    from keras_bert.tasks import registry
    from keras_bert.tasks.keras_predictor import KerasPredictor
    from keras_bert.training import flops
    from keras_bert.training.batch_plan import BatchPlan

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *(f"word{number}" for number in range(VOCABULARY - len(special)))]
    pooling = "mean" if case.task == "embeddings" else None
    encoder = _encoder(case, preprocessor=Preprocessor(tokens), pooling=pooling)
    examples = _examples(case)
    task = registry.for_data(examples)
    with distribution.scope("mirrored"):
        model = task.model_of_logits(task.build(encoder, examples))
        options = task.training_options.of({}, task.name)
        encoded = task.encode(KerasPredictor(model).task_model, examples, case.length, options)
        # Windows of questions have one length; other texts are packed, also in rows of one length.
        fixed = case.task == "questions"
        compile_options = task.compile_options(heads.find_output(model), encoded)
        plan = BatchPlan(
            model,
            encoded,
            case.batch,
            seed=0,
            epochs=1,
            losses=compile_options["loss"],
            fixed_length=fixed,
        )
        batch = plan.batch(0)
    plan.trained.compile(
        optimizers.adamw(5e-5, total_steps=1000, warmup_steps=100),
        **compile_options,
        jit_compile=True,
    )
    plan.trained.optimizer.build(plan.trained.trainable_variables)
    rows, length = batch[0]["input_word_ids"].shape
    return plan.trained, batch, rows * flops.of_encoder(encoder.bert_config, length)


def _examples(case):
    """Return made-up data for one batch. The texts have 25 words on average, like sentences."""
    import numpy as np

    import keras_bert
    from keras_bert import EmbeddingExamples
    from keras_bert.tasks.question_answering.data import Questions
    from keras_bert.tasks.tagging.data import TaggedSentences

    random = np.random.default_rng(0)
    longest = case.length - 2
    sizes = np.minimum(random.geometric(1 / 25, 2 * case.batch), longest).tolist()
    texts = [[f"word{number}" for number in random.integers(0, 30_000, size)] for size in sizes]
    joined = [" ".join(words) for words in texts]
    if case.task == "texts":
        labels = ["yes", "no"] * (case.batch // 2)
        return keras_bert.Examples(joined[: case.batch], labels=labels)
    if case.task == "tags":
        words = texts[: case.batch]
        return TaggedSentences(words, [["O", *["B-place"] * (len(row) - 1)] for row in words])
    if case.task == "questions":
        context = " ".join(f"word{number}" for number in range(case.length - 20))
        count = case.batch
        answers = [[("word1", context.index("word1"))]] * count
        return Questions(["word5 word6"] * count, [context] * count, answers)
    return EmbeddingExamples(list(zip(joined[::2], joined[1::2], strict=True)))


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


def roofline(compiled, chip):
    """Return the seconds of the operations and of the bytes of a step, on one `Chip`."""
    cost = compiled.cost_analysis()
    return cost["flops"] / chip.peak, cost["bytes accessed"] / chip.bandwidth


def collectives(compiled):
    """Return a dict of the collectives in a compiled step and their counts."""
    text = compiled.as_text()
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    counts = {kind: len(re.findall(rf" {kind}(?:-start)?\(", text)) for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}


def row(case, chip, chips, options):
    """Compile a case. Return a row of the table, if it fits, and the chip-seconds of a sequence."""
    import jax

    start = time.perf_counter()
    names = [name for name in ("rematerialize", "packed") if getattr(case, name)]
    if case.model_parallel > 1:
        names.append(f"model parallel {case.model_parallel}")
    cells = [case.task, case.size, case.length, case.batch, ", ".join(names)]
    try:
        compiled, operations = compile_step(case, chips, **options)
    except jax.errors.JaxRuntimeError as error:  # for example, the program is too large
        return [*cells, f"{str(error).splitlines()[0]:.120}"], False, None
    size = needed(compiled)
    compute, memory = roofline(compiled, chip)
    seconds = max(compute, memory)
    utilization = operations / (len(chips) * chip.peak * seconds)
    counts = [f"{count} {kind}" for kind, count in collectives(compiled).items()]
    cells += [
        f"{size / 2**30:.1f}",
        f"{compute * 1e3:.1f}",
        f"{memory * 1e3:.1f}",
        f"{utilization:.2f}",
        ", ".join(counts),
        f"{time.perf_counter() - start:.0f} s",
    ]
    return cells, size < chip.memory, seconds * len(chips) / case.batch


def print_plan(chip, seconds):
    """Print the chip-hours of the paper's steps. `seconds` are by (model, length)."""
    import paper_plan

    for model in paper_plan.MODELS:
        of_model = {length: value for (name, length), value in seconds.items() if name == model}
        if of_model.keys() != paper_plan.SEQUENCES.keys():
            continue
        planned = {
            length: paper_plan.operations_per_sequence(model, length) / (0.4 * chip.peak)
            for length in paper_plan.SEQUENCES
        }
        print(
            f"the paper's 1,000,000 steps of {model}: "
            f"{paper_plan.chip_hours(of_model):.0f} chip-hours by the roofline; "
            f"{paper_plan.chip_hours(planned):.0f} at 40% of the peak"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chip", choices=CHIPS, default="v5e")
    parser.add_argument("--task", nargs="+", help="only these tasks")
    parser.add_argument("--only", default=range(len(CASES)), type=int, nargs="+", metavar="ROW")
    parser.add_argument("--effort", type=float, default=0.0, help="effort of the compiler, -1 to 1")
    args = parser.parse_args()
    # Each generation of chips has its own name for a machine with four of them.
    machine = {"v5e": "v5litepod-4", "v6e": "v6e-4"}[args.chip]
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", machine)
    options = {"exec_time_optimization_effort": args.effort} if args.effort else {}
    import jax
    import keras

    chips, chip = chips_of(f"{args.chip}:2x2"), CHIPS[args.chip]
    print(f"jax {jax.__version__}, keras {keras.__version__}, four chips {args.chip}")
    print("| Task | Model | Length | Batch | Options | GB a chip | Compute, ms | Memory, ms "
          "| Utilization | Collectives | Compiled in |")  # fmt: skip
    print("|---" * 11 + "|")
    all_fit, seconds = True, {}
    for case in (CASES[number] for number in args.only):
        if args.task and case.task not in args.task:
            continue
        cells, fits, of_sequence = row(case, chip, chips, options)
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        all_fit = all_fit and fits
        if case.task == "pretraining" and case.model_parallel == 1 and not case.packed and fits:
            key = case.size, case.length
            seconds[key] = min(of_sequence, seconds.get(key, of_sequence))
    print_plan(chip, seconds)
    return 0 if all_fit else 1


if __name__ == "__main__":
    sys.exit(main())
