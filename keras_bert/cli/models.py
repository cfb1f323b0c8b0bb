"""`info`, `convert` and `export`: describe a model, and write it in other formats."""

import pathlib

import keras_bert
from keras_bert import heads
from keras_bert.cli import arguments, options, reading
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.terminal import print_line, waiting


def info(args: options.Info) -> None:
    """Print sizes, vocabulary and labels of a model."""
    model = arguments.load(args, task="auto")
    encoder = heads.find_encoder(model)
    output = heads.find_output(model)
    lines = {"model": args.model, "parameters": f"{model.count_params():,}"}
    for key, value in encoder.get_config().items():
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            lines[key] = str(value)
    if encoder.preprocessor is not None:
        preprocessor = encoder.preprocessor
        lines["tokens"] = f"{len(preprocessor.vocabulary):,}"
        for option in ("lowercase", "strip_accents", "split_cjk"):
            lines[option] = getattr(preprocessor, option)
    if output is not None:
        task = heads.find_task(model)
        lines["task"] = f"{task}{' of pairs' if output.pairs else ''}"
        if output.labels and task == output.task:  # pretraining has two heads
            lines["labels"] = ", ".join(output.labels)
    width = max(map(len, lines))
    for key, value in lines.items():
        print_line(f"{key:{width}}  {printable(str(value))}")


def convert(args: options.Convert) -> None:
    """Write a model in another format."""
    written = keras_bert.convert(
        args.model,
        args.path,
        format=args.to,
        drop=args.drop or (),
        hidden_act=args.hidden_act,
        ignore=args.ignore or (),
        trusted=args.trusted,
    )
    parts = ", ".join(["encoder", *sorted(written.groups)])
    print_line(f"{args.to}: {parts}: {len(written.weights)} weights in {args.path}")


def export(args: options.Export) -> None:
    """Write a SavedModel or an ONNX folder."""
    before = _versions_in(args.path)
    with waiting("Exporting"):
        model = arguments.load(args, task=args.task or "auto")
        dev = None
        if args.dev is not None:
            columns = reading.columns_of(args, args.model)
            dev = reading.read(args.dev, reading.task_of(model), columns, None)
        written = keras_bert.export(
            model,
            args.path,
            format=args.format,
            precision=args.precision,
            quantize=args.quantize,
            dev=dev,
            license=args.license,
        )
    if args.format == "onnx":
        print_line(written)
    for version in sorted(_versions_in(args.path) - before):  # a pair has two
        print_line(version)


def _versions_in(path):
    """Return the folders of the SavedModels in a model folder or in a pair."""
    folder = pathlib.Path(path)
    patterns = ("*/saved_model.pb", "encoder/*/saved_model.pb", "preprocess/*/saved_model.pb")
    return {file.parent for pattern in patterns for file in folder.glob(pattern)}
