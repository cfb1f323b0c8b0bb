"""Options of `evaluate`, `predict`, `embed` and `fill`."""

from keras_bert.cli.options import common


def add_evaluate(commands):
    parser = common.add_command(
        commands, "evaluate", "score a trained model on a labeled file", "inference.evaluate"
    )
    parser.set_defaults(files=("input",), takes_folders=True)
    common.add_model(parser, common.FINE_TUNED_HELP)
    parser.add_argument(
        "--task", choices=("embedding",), help="score the embeddings of an encoder without a head"
    )
    common.add_pooling(parser)
    parser.add_argument(
        "--input",
        required=True,
        help="file for the model's task. Embeddings: pairs, or a folder in the format of BEIR or "
        "TREC, or SQuAD's JSON, to search for the paragraph of each question",
    )
    parser.add_argument(
        "--split", default="test", help="embeddings: the file in qrels/ of a folder (default: test)"
    )
    common.add_prompts(parser)
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
        "--prompt",
        help="comes before each text: a name of the model's prompts or a text (default: the "
        "model's default prompt)",
    )
    common.add_pooling(parser)
    common.add_text_column(parser)
    common.add_batch_size(parser)
    common.add_precision(parser)


def add_search(commands):
    parser = common.add_command(
        commands, "search", "find the texts of a file that are nearest to a query", "search.find"
    )
    parser.set_defaults(files=("file",))
    parser.add_argument("file", help="TSV, CSV or JSON Lines file, or a .txt file with a text per "
                        "line; the vectors of its texts are saved beside it")  # fmt: skip
    parser.add_argument("query", help="text to search for")
    parser.add_argument(
        "--model", default="minilm", help="an encoder or embedder: name, hf:org/name, folder or "
        ".keras file (default: minilm)"
    )  # fmt: skip
    common.add_trusted(parser)
    parser.add_argument("--top", type=common.positive(int), default=5, help="texts (default: 5)")
    common.add_prompts(parser)
    common.add_pooling(parser)
    common.add_text_column(parser)
    common.add_batch_size(parser)
    common.add_precision(parser)


def add_mine(commands):
    parser = common.add_command(
        commands,
        "mine",
        "add hard negatives to a file of pairs, to train embeddings",
        "search.mine",
    )
    parser.set_defaults(files=("file",))
    parser.add_argument(
        "file", help="TSV, CSV or JSON Lines file of queries and positives; the negatives are "
        "other positives"
    )  # fmt: skip
    parser.add_argument(
        "--output", required=True, help=".tsv, .csv or .jsonl file with the columns of the texts "
        "and negative_1, negative_2, ..."
    )  # fmt: skip
    parser.add_argument(
        "--model", default="minilm", help="an encoder or embedder (default: minilm)"
    )
    common.add_trusted(parser)
    parser.add_argument(
        "--count",
        type=common.positive(int),
        default=1,
        help="negatives per row (default: 1)",
    )
    parser.add_argument(
        "--margin", type=float, default=0.05, help="a negative is less similar than the positive "
        "by at least this (default: 0.05)"
    )  # fmt: skip
    common.add_prompts(parser)
    common.add_pooling(parser)
    common.add_text_column(parser)
    parser.add_argument("--text-pair", required=True, help="column of the positives")
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
