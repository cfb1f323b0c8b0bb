"""Options of `explain`."""

from keras_bert.cli.options import common


def add_explain(commands):
    parser = common.add_command(
        commands, "explain", "write an HTML page on what a model looks at in a text",
        "explain.explain",
    )  # fmt: skip
    common.add_model(parser)
    parser.add_argument("text", help="text. Question answering: the question")
    parser.add_argument(
        "text_pair",
        nargs="?",
        help="second text of a pair. Question answering: the context. Multiple choice: one of the "
        "choices",
    )
    parser.add_argument("--output", required=True, help="HTML file")
    parser.add_argument(
        "--target",
        help="output to explain. Classes: a label (default: the predicted one). Tagging: the index "
        "of a word, from 0. Question answering: start or end (default: start). Masked tokens: "
        "a token for the first [MASK] (default: the most probable one). Embeddings: a text to "
        "compare with",
    )
    parser.add_argument(
        "--steps",
        type=common.positive(int),
        default=50,
        help="points at which the gradient is computed (default: 50)",
    )
