"""Options of `finetune`."""

from keras_bert.cli.options import common

TASKS = (
    "classification",
    "pair",
    "multi-label",
    "regression",
    "embedding",
    "tagging",
    "question-answering",
    "multiple-choice",
)

LOSSES = (
    "multiple_negatives_ranking", "triplet", "cosent", "cosine_similarity", "contrastive",
)  # fmt: skip


def add_finetune(commands):
    parser = common.add_command(
        commands, "finetune", "train a model on a labeled file", "training.finetune"
    )
    parser.set_defaults(files=("train", "dev"), takes_folders=True)
    parser.add_argument(
        "--model",
        default="minilm",
        help="encoder to start from, or a trained model, whose head is kept if it has all labels "
        "of --train (default: minilm)",
    )
    common.add_trusted(parser)
    parser.add_argument(
        "--keep-layers",
        nargs="+",
        type=int,
        metavar="NUMBER",
        help="keep only these layers of the encoder, from 0",
    )
    parser.add_argument(
        "--teacher",
        metavar="MODEL",
        help="embedding: an embedder to imitate: its vectors of the texts in --train, or with "
        "--loss cosent or cosine_similarity its scores of the pairs. Scores and negatives in "
        "--train are not used",
    )
    common.add_pooling(parser)
    parser.add_argument("--task", choices=TASKS, help="default: classification")
    _add_data(parser.add_argument_group("data"))
    _add_recipe(parser.add_argument_group("recipe; the defaults are those of the paper"))
    _add_machine(parser.add_argument_group("machine"))
    parser.add_argument(
        "--output", required=True, help="folder for the model, metrics.json and plots"
    )


def _add_data(group):
    group.add_argument(
        "--train",
        nargs="+",
        help="TSV (without quoting), CSV or JSON Lines. Embedding: one or several files of pairs "
        "of texts with --text and --text-pair; with --label, their scores. Without --text-pair, "
        "texts whose classes are in --label, or texts without labels (SimCSE). Tagging: CoNLL "
        "columns or CoNLL-U. "
        "Question answering: SQuAD's JSON. Multiple choice: JSON Lines with the keys text, "
        "choices (a list) and label (index of the correct choice, from 0), or SWAG's CSV",
    )
    group.add_argument(
        "--dev",
        help="file to score the model on after each epoch (default: no scores). Embedding: also a "
        "folder in the format of BEIR, whose qrels/dev.tsv is read, or TREC",
    )
    group.add_argument(
        "--glue",
        help="folder of a GLUE task with its original name (MRPC, SST-2, ...); replaces --train, "
        "--dev, --task and the columns",
    )
    common.add_columns(group)
    common.add_labels(group)
    group.add_argument(
        "--negatives", nargs="+", metavar="COLUMN", help="embedding: columns of hard negatives"
    )
    group.add_argument(
        "--score-range",
        nargs=2,
        type=float,
        metavar=("LOW", "HIGH"),
        help="embedding: the lowest and the highest score in --label, which are scaled to 0 and 1",
    )
    group.add_argument(
        "--limit", type=common.positive(int), help="train on the first rows only (default: all)"
    )


def _add_recipe(group):
    group.add_argument(
        "--epochs", type=common.positive(int), help="passes over the data (default: 3)"
    )
    common.add_batch_size(group, default=None)  # None: --search may choose it
    group.add_argument(
        "--learning-rate", type=common.positive(float), help="peak rate (default: 5e-5)"
    )
    group.add_argument(
        "--warmup",
        type=common.fraction,
        default=0.1,
        help="fraction of the steps in which the rate rises (default: 0.1)",
    )
    group.add_argument(
        "--schedule",
        choices=("linear", "cosine", "constant"),
        default="linear",
        help="the rate after the warm-up (default: linear decay to 0)",
    )
    group.add_argument(
        "--max-length",
        type=common.length(3),
        help="maximum tokens per sequence (default: 128; question answering: 384). Longer "
        "texts are truncated, or split into windows in tagging and question answering",
    )
    group.add_argument(
        "--loss",
        choices=LOSSES,
        help="embedding (default: cosent for scored pairs, else multiple_negatives_ranking)",
    )
    group.add_argument(
        "--matryoshka-dims",
        nargs="+",
        type=common.positive(int),
        metavar="WIDTH",
        help="embedding: also train the first numbers of each vector, for these widths",
    )
    group.add_argument(
        "--gradient-caching",
        action="store_true",
        help="embedding: compare the rows of all batches of an optimizer step with one another "
        "(needs --gradient-accumulation-steps)",
    )
    group.add_argument(
        "--sampling",
        choices=("proportional", "round_robin"),
        help="embedding: how the batches of several --train files take turns (default: "
        "proportional)",
    )
    group.add_argument(
        "--stride",
        type=common.positive(int),
        help="tagging and question answering: tokens between the starts of two windows in training "
        "(question answering: 128)",
    )
    common.add_characters(group)
    group.add_argument(
        "--class-weight", choices=("balanced",), help="classification: give rare labels more weight"
    )
    group.add_argument(
        "--gradient-accumulation-steps",
        type=common.positive(int),
        default=1,
        help="batches per optimizer step (default: 1)",
    )
    group.add_argument("--freeze", action="store_true", help="train only the head")
    group.add_argument(
        "--metric",
        help="metric that selects the best epoch (default: the first one printed). "
        "Classification: accuracy, f1 (with two labels, of the label that sorts last), macro_f1 "
        "(three or more labels), mcc. Multi-label: micro_f1, macro_f1, exact_match. Regression: "
        "pearson, spearman, rmse. Embedding: spearman, mrr@10. "
        "Tagging: f1, precision, recall, accuracy. Question answering: f1, exact_match. "
        "All tasks: dev_loss",
    )
    group.add_argument(
        "--patience",
        type=common.positive(int),
        help="stop after this many epochs without improvement",
    )
    group.add_argument(
        "--evaluate-every",
        type=common.positive(float),
        metavar="N",
        help="also score --dev after every N batches; a fraction such as 0.25 is a part of an "
        "epoch",
    )
    group.add_argument(
        "--search",
        action="store_true",
        help="try the 18 recipes of the paper (batch size 16 or 32; learning rate 5e-5, 3e-5 or "
        "2e-5; 2 to 4 epochs) and keep the best. Options that you give are not searched. A search "
        "that was stopped starts over",
    )
    group.add_argument(
        "--seed", type=common.seed, default=0, help="seed of head, order and dropout (default: 0)"
    )


def _add_machine(group):
    group.add_argument(
        "--dtype",
        choices=common.DTYPES,
        help=f"{common.DTYPE_HELP} (default: that of --model; float32 for a checkpoint)",
    )
    group.add_argument(
        "--rematerialize", action="store_true", help="save memory, at the cost of time"
    )
    group.add_argument(
        "--fixed-length", action="store_true", help="one shape for all batches, for TPUs"
    )
    group.add_argument("--tensorboard", metavar="FOLDER", help="write logs for TensorBoard")
