"""Options of `evaluate`, `predict`, `embed` and `fill`."""

from keras_bert.cli.options import common


def add_evaluate(commands):
    parser = common.add_command(
        commands, "evaluate", "score a trained model on a labeled file", "inference.evaluate"
    )
    parser.set_defaults(files=("input",))
    common.add_model(parser, common.FINE_TUNED_HELP)
    parser.add_argument("--input", required=True, help="file for the model's task")
    columns = parser.add_argument_group("columns", common.COLUMNS_HELP)
    common.add_columns(columns)
    common.add_labels(columns)
    common.add_characters(parser)
    common.add_null_threshold(parser)
    common.add_batch_size(parser)
    common.add_precision(parser)


def add_predict(commands):
    parser = common.add_command(
        commands, "predict", "predict for texts or a file with a trained model",
        "inference.predict_texts",
    )  # fmt: skip
    parser.set_defaults(files=("input",))
    common.add_model(parser, common.FINE_TUNED_HELP)
    parser.add_argument(
        "texts",
        nargs="*",
        help="texts. Pairs: two texts. Question answering: a question and a context. Multiple "
        "choice: a text and its choices. Tagging splits texts at white space and punctuation, or "
        "into characters if the training data was split so. Or give --input",
    )
    parser.add_argument(
        "--input",
        help="file for the model's task, of any size. Multiple choice: JSON Lines with the keys "
        "text and choices (a list), or SWAG's CSV",
    )
    common.add_columns(parser.add_argument_group("columns", common.COLUMNS_HELP))
    parser.add_argument(
        "--output",
        help="file for the predictions, in the order of the input. The extension selects the "
        "format: .jsonl, .csv, .json (question answering: SQuAD's predictions file), any other: "
        "tab-separated. Default, and -: standard output",
    )
    parser.add_argument(
        "--probabilities",
        action="store_true",
        help="classification and multiple choice: also write the probability of every class",
    )
    common.add_null_threshold(parser)
    common.add_batch_size(parser)
    common.add_precision(parser)


def add_embed(commands):
    parser = common.add_command(
        commands, "embed", "write a vector for each text of a file", "inference.embed"
    )
    parser.set_defaults(files=("input",))
    common.add_model(parser, "an encoder: name, hf:org/name, folder or .keras file")
    parser.add_argument("--input", required=True, help="TSV, CSV or JSON Lines file")
    parser.add_argument("--output", required=True, help=".npy file for the vectors")
    parser.add_argument(
        "--pooling",
        choices=("mean", "cls", "max"),
        help="how an encoder's token vectors become one vector (default: mean)",
    )
    common.add_text_column(parser)
    common.add_batch_size(parser)
    common.add_precision(parser)


def add_fill(commands):
    parser = common.add_command(
        commands, "fill", "predict the tokens at [MASK] in texts", "inference.fill_masks"
    )
    common.add_model(parser, "a checkpoint with a masked LM head")
    parser.add_argument("texts", nargs="+", help="texts with [MASK]")
    parser.add_argument(
        "--top", type=common.positive(int), default=5, help="candidates per mask (default: 5)"
    )
