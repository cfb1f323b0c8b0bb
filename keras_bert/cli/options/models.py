"""Options of `list`, `doctor`, `info`, `convert` and `export`."""

from keras_bert.cli.options import common


def add_list(commands):
    common.add_command(commands, "list", "list the models that have a name")


def add_doctor(commands):
    common.add_command(
        commands,
        "doctor",
        "print versions, devices, the cache and missing packages, for reports of bugs",
    )


def add_info(commands):
    parser = common.add_command(
        commands, "info", "print a model's sizes, vocabulary and labels", "models.info"
    )
    common.add_model(parser)


def add_convert(commands):
    parser = common.add_command(
        commands, "convert", "write a model in another library's format", "models.convert"
    )
    common.add_model(parser)
    parser.add_argument("path", help="empty folder to write to; for keras also a .keras file")
    parser.add_argument(
        "--to",
        required=True,
        choices=("keras", "huggingface", "google", "keras_hub", "sentence_transformers"),
    )
    parser.add_argument(
        "--drop",
        action="append",
        default=[],
        choices=("pooler", "masked_lm", "next_sentence", "classifier", "span_selector"),
        help="part to leave out; repeat the option for several parts",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="tensor of the checkpoint to leave out, such as 'cls.chain.*'; repeat the option for "
        "several patterns",
    )
    parser.add_argument(
        "--hidden-act",
        choices=("gelu", "gelu_new", "relu"),
        help="activation to write instead of the model's own",
    )


def add_export(commands):
    parser = common.add_command(
        commands, "export", "write a SavedModel or an ONNX folder", "models.export"
    )
    common.add_model(
        parser, "folder or .keras file of a trained model; or an encoder, by name or folder"
    )
    parser.add_argument(
        "path",
        help="model folder for TensorFlow Serving; each export is the next version. An encoder is "
        "exported as a pair, preprocess and encoder",
    )
    parser.add_argument(
        "--task",
        default="auto",
        choices=("masked_lm", "next_sentence"),
        help="head of a pretrained model to export (default: the encoder, as a pair)",
    )
    parser.add_argument(
        "--format",
        choices=("saved_model", "onnx"),
        default="saved_model",
        help="saved_model: strings in, for TensorFlow Serving (default). onnx: ids in, for ONNX "
        "Runtime and OpenVINO",
    )
    common.add_precision(parser)
    parser.add_argument(
        "--quantize", choices=("int8",), help="onnx: quantize matmuls and embeddings"
    )
    parser.add_argument(
        "--dev",
        help="labeled file; the model card states how far bfloat16 or int8 agrees with float32",
    )
    columns = parser.add_argument_group("columns of --dev", common.COLUMNS_HELP)
    common.add_columns(columns, file_format=False)
    common.add_labels(columns)
    parser.add_argument(
        "--license",
        help="license of the source weights, for the model card (default: that of a known name)",
    )
