"""Options and types of options that several commands share."""

MODEL_HELP = "name (see keras-bert list), hf:org/name, folder, .zip or .keras file"
FINE_TUNED_HELP = "folder or .keras file of a fine-tuned model"
DTYPES = ("float32", "mixed_bfloat16", "mixed_float16", "auto")
DTYPE_HELP = (
    "auto: mixed_bfloat16 on TPUs, and with TensorFlow on processors with AVX512-BF16 or AMX; "
    "otherwise float32"
)
COLUMNS_HELP = "default: the columns that the model was trained on, from its metrics.json"


_POOLING = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def add_command(commands, name, help, run=None):
    """Add a command and return its parser.

    `help` has no capital and no period. `run` is "module.function" in `keras_bert.cli`.
    """
    parser = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    parser.set_defaults(run=run)
    return parser


def add_model(parser, help=MODEL_HELP, code="code in the model"):
    """Add the model, and the option to trust it; `code` is what may run then."""
    parser.add_argument("model", help=help)
    add_trusted(parser, code)


def add_trusted(parser, code="code in the model"):
    parser.add_argument(
        "--trusted",
        action="store_true",
        help=f"allow {code} to run; use only for models you trust",
    )


# No defaults here: a command uses the columns in the model's metrics.json, if there are any.
def add_columns(parser, file_format=True):
    """Add the options that say where a file has its texts."""
    add_text_column(parser, file_format)
    parser.add_argument("--text-pair", help="column of the second text of a pair")
    parser.add_argument("--separator", help="separator of the labels of one text (default: ,)")
    parser.add_argument("--word", type=column, help="tagging: column of the word (default: 1)")


def add_text_column(parser, file_format=True):
    parser.add_argument("--text", help="column of the text, by default text")
    if file_format:
        formats = ("tsv", "csv", "jsonl", "conll", "conllu")
        parser.add_argument("--format", choices=formats, help="file format (default: by extension)")
    parser.add_argument(
        "--no-header",
        dest="header",
        action="store_const",
        const=False,
        help="the file has no header; name columns by number, from 1",
    )


def add_labels(parser):
    parser.add_argument(
        "--label",
        help="column of the label (default: label). Multi-label: also the columns of 0 and 1 of "
        "each label, such as toxic,obscene",
    )
    parser.add_argument(
        "--tag", type=column, help="tagging: column of the tag (default: -1, the last)"
    )


def add_prompts(parser):
    parser.add_argument(
        "--prompt",
        help="embeddings: prompt of the queries, a name of the model's prompts or a text",
    )
    parser.add_argument("--corpus-prompt", help="embeddings: prompt of the texts to find")


def add_pooling(parser):
    parser.add_argument(
        "--pooling",
        choices=_POOLING,
        help="embeddings: how the token vectors become one vector (default: the pooling of the "
        "model)",
    )


def add_characters(parser):
    parser.add_argument(
        "--characters",
        action="store_const",
        const=True,
        help="question answering: compute F1 over characters; default for KorQuAD files",
    )


def add_null_threshold(parser):
    parser.add_argument(
        "--null-threshold",
        type=float,
        metavar="LOGITS",
        help="question answering: answer only if the best span scores higher than 'no answer' "
        "minus this value (default: 0)",
    )


def add_precision(parser):
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="dtype of the matmuls (default: that of the model). bfloat16 is faster on processors "
        "with AVX512-BF16 or AMX, and exports are about half as large",
    )


def add_batch_size(parser, default=32):
    parser.add_argument(
        "--batch-size", type=positive(int), default=default, help="sequences (default: 32)"
    )


def column(text):
    """Return the number of a column of CoNLL, or the name of one in JSON Lines or CSV."""
    try:
        return int(text)
    except ValueError:
        return text


def positive(kind):
    """Return a parser of positive, finite numbers."""

    def parse(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def length(least):
    """Return a parser of sequence lengths."""

    def parse(text):
        value = int(text)
        if value < least:
            raise ValueError
        return value

    parse.__name__ = f"length (at least {least})"
    return parse


def seed(text):
    value = int(text)
    if not 0 <= value < 2**32:
        raise ValueError
    return value


def fraction(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


# argparse names a type in its errors by `__name__`.
seed.__name__ = "seed (0 to 2^32 - 1)"
fraction.__name__ = "fraction (0 to 1)"
