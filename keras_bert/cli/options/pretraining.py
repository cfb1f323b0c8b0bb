"""Options of `vocab`, `records` and `pretrain`."""

from keras_bert.cli.options import common

# Layers and hidden size of the models that Google published.
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


def add_vocab(commands):
    parser = common.add_command(
        commands, "vocab", "learn a vocabulary from your own text", "pretraining.make_vocabulary"
    )
    parser.add_argument(
        "corpus",
        nargs="+",
        help="files, folders, patterns: text, JSON Lines, MediaWiki dumps",
    )
    parser.add_argument(
        "--size",
        type=common.positive(int),
        default=30522,
        help="exact number of tokens (default: 30522)",
    )
    parser.add_argument("--output", required=True, help="folder for vocab.txt and its options")
    parser.add_argument("--cased", action="store_true", help="keep upper case and accents")
    parser.add_argument(
        "--keep-accents", action="store_true", help="keep accents and whole Hangul syllables"
    )
    parser.add_argument(
        "--no-split-cjk", action="store_true", help="do not split ideographs into words"
    )
    parser.add_argument(
        "--min-frequency",
        type=common.positive(int),
        default=2,
        help="minimum frequency of a token (default: 2)",
    )
    parser.add_argument(
        "--max-bytes",
        type=common.positive(int),
        help="learn from this many bytes, sampled evenly (default: all)",
    )


def add_records(commands):
    parser = common.add_command(
        commands, "records", "tokenize a corpus once, for pretraining", "pretraining.make_records"
    )
    parser.add_argument("corpus", nargs="+", help="files, folders, patterns, as for vocab")
    parser.add_argument(
        "--vocab",
        required=True,
        help="folder that vocab wrote, a vocab.txt, or a model with a vocabulary",
    )
    parser.add_argument("--output", required=True, help="folder for the records")
    parser.add_argument(
        "--held-out",
        type=common.fraction,
        default=0.01,
        help="fraction of the documents kept for evaluation (default: 0.01)",
    )
    parser.add_argument(
        "--workers",
        type=common.positive(int),
        help="processes that split text (default: one per core)",
    )


def add_pretrain(commands):
    parser = common.add_command(
        commands, "pretrain", "train a BERT from records", "pretraining.pretrain"
    )
    parser.set_defaults(files=("config",))
    parser.add_argument("--records", required=True, help="folder that records wrote")
    parser.add_argument(
        "--output", required=True, help="folder for checkpoints, curves and the model"
    )
    common.add_trusted(parser)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model", help="continue from this model, which must have the records' vocabulary"
    )
    model.add_argument("--size", choices=tuple(SIZES), help="size of a new model (default: base)")
    model.add_argument("--config", help="bert_config.json of a new model, instead of --size")
    _add_recipe(parser.add_argument_group("recipe; the defaults are those of the paper"))
    _add_machine(parser.add_argument_group("machine"))
    run = parser.add_argument_group("run; the same command resumes a run that was stopped")
    run.add_argument("--log-every", type=common.positive(int), default=100, help="steps (100)")
    run.add_argument("--save-every", type=common.positive(int), default=1000, help="steps (1000)")
    run.add_argument("--eval-every", type=common.positive(int), help="steps (--save-every)")
    run.add_argument("--keep", type=common.positive(int), default=3, help="checkpoints kept (3)")
    run.add_argument("--tensorboard", metavar="FOLDER", help="write logs for TensorBoard")


def _add_recipe(group):
    group.add_argument(
        "--steps",
        type=common.positive(int),
        default=1_000_000,
        help="optimizer steps (default: 1000000)",
    )
    group.add_argument(
        "--lengths",
        type=common.length(8),
        nargs="+",
        default=[128, 512],
        help="sequence length of each phase (default: 128 512)",
    )
    group.add_argument(
        "--first-share",
        type=common.fraction,
        default=0.9,
        help="fraction of the steps in the first phase (default: 0.9)",
    )
    group.add_argument(
        "--batch-size",
        type=common.positive(int),
        default=256,
        help="sequences per step, over all devices and accumulated batches (default: 256)",
    )
    group.add_argument(
        "--max-predictions",
        type=common.positive(int),
        nargs="+",
        metavar="N",
        help="masked tokens per sequence, for both lengths or for each (default: 15%%)",
    )
    group.add_argument(
        "--learning-rate",
        type=common.positive(float),
        default=1e-4,
        help="peak rate (default: 1e-4)",
    )
    group.add_argument(
        "--warmup-steps",
        type=int,
        help="steps in which the rate rises (default: 10000, at most 10%% of --steps)",
    )
    group.add_argument("--optimizer", choices=("adamw", "lamb"), default="adamw")
    group.add_argument("--whole-words", action="store_true", help="mask whole words")
    group.add_argument(
        "--no-next-sentence", action="store_true", help="single texts, masked LM only"
    )
    group.add_argument("--seed", type=common.seed, default=0, help="random seed (default: 0)")


def _add_machine(group):
    group.add_argument(
        "--strategy", default="auto", help="auto, one-device, mirrored, multi-worker, tpu[:NAME]"
    )
    group.add_argument(
        "--model-parallel",
        type=common.positive(int),
        default=1,
        help="JAX: devices that share each weight matrix, for models too large for one (1)",
    )
    group.add_argument(
        "--packed", action="store_true", help="pack several pairs into each row; no padding"
    )
    group.add_argument(
        "--gradient-accumulation-steps",
        type=common.positive(int),
        default=1,
        help="parts in which a step's batch is computed, to save memory (default: 1)",
    )
    group.add_argument(
        "--dtype", choices=common.DTYPES, help=f"{common.DTYPE_HELP} (default: float32)"
    )
    group.add_argument(
        "--rematerialize", action="store_true", help="save memory, at the cost of time"
    )
