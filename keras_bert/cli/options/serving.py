"""Options of `serve`."""

from keras_bert.cli.options import common


def add_serve(commands):
    parser = common.add_command(
        commands, "serve", "serve a model over HTTP, with a web page, on this machine",
        "serving.serve",
    )  # fmt: skip
    common.add_model(
        parser,
        "SavedModels: a model folder, a version or several models; or a trained model",
        "code in the model, or a SavedModel that was not exported on this machine,",
    )
    common.add_precision(parser)
    parser.add_argument("--name", help="model name in URLs (default: name of the folder)")
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    parser.add_argument("--port", type=int, default=8501, help="default: 8501; 0: any free port")
    parser.add_argument(
        "--max-body",
        type=common.positive(int),
        default=2**20,
        help="maximum bytes per request (default: 1 MiB)",
    )
    parser.add_argument(
        "--max-text",
        type=common.positive(int),
        default=2**16,
        help="maximum bytes per text (default: 64 KiB)",
    )
    parser.add_argument(
        "--max-rows",
        type=common.positive(int),
        default=1024,
        help="maximum rows per request (default: 1024)",
    )
