"""The command line: `keras-bert`, or `python -m keras_bert`.

Keras is imported when a command runs, not before, so that `--help` answers at once.
"""

import argparse
import json
import os
import pathlib
import sys

from keras_bert import __version__
from keras_bert.console import progress, quiet_imports, waiting


def _parser():
    parser = argparse.ArgumentParser(
        prog="keras-bert", description="BERT for Keras 3: fine-tune, predict, export."
    )
    parser.add_argument("--version", action="version", version=f"keras_bert {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    info = commands.add_parser("info", help="what a model is: sizes, vocabulary, labels")
    info.add_argument("model", help="name, hf:org/name, folder or .keras file")
    info.set_defaults(run=_info)

    finetune = commands.add_parser("finetune", help="train a classifier on a labelled file")
    finetune.add_argument(
        "--model", default="minilm", help="encoder to start from (default: minilm)"
    )
    finetune.add_argument("--train", required=True, help="TSV, CSV or JSON Lines file")
    finetune.add_argument("--dev", help="file to score the model on")
    _add_columns(finetune)
    finetune.add_argument("--label", default="label", help="column of the label (default: label)")
    finetune.add_argument("--output", required=True, help="folder for the model")
    finetune.add_argument(
        "--epochs", type=_positive(int), default=3, help="passes over the data (default: 3)"
    )
    finetune.add_argument(
        "--batch-size", type=_positive(int), default=32, help="texts a step (default: 32)"
    )
    finetune.add_argument(
        "--learning-rate", type=_positive(float), default=5e-5, help="its peak (default: 5e-5)"
    )
    finetune.add_argument(
        "--max-length",
        type=_length,
        default=128,
        help="in pieces, what is longer is cut (default: 128)",
    )
    finetune.add_argument(
        "--seed", type=int, default=0, help="of head, order and dropout (default: 0)"
    )
    finetune.add_argument("--limit", type=_positive(int), help="train on the first rows only")
    finetune.set_defaults(run=_finetune)

    predict = commands.add_parser("predict", help="label texts with a trained model")
    predict.add_argument("model", help="folder or .keras file of a classifier")
    predict.add_argument("texts", nargs="*", help="texts; or give --input")
    predict.add_argument("--input", help="TSV, CSV or JSON Lines file")
    _add_columns(predict)
    predict.add_argument("--output", help="TSV file for the answers; default: standard output")
    predict.add_argument(
        "--batch-size", type=_positive(int), default=32, help="texts at once (default: 32)"
    )
    predict.set_defaults(run=_predict)

    export = commands.add_parser("export", help="write a SavedModel that takes strings")
    export.add_argument("model", help="folder or .keras file of a classifier")
    export.add_argument("path", help="model folder of TensorFlow Serving")
    export.set_defaults(run=_export)
    return parser


def _add_columns(parser):
    parser.add_argument("--text", default="text", help="column of the text (default: text)")
    parser.add_argument("--text-pair", help="column of the second text, for pairs")
    parser.add_argument("--format", choices=("tsv", "csv", "jsonl"), help="default: by ending")
    parser.add_argument("--no-header", action="store_true", help="columns are then numbers, from 1")


def _positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def _length(text):
    value = int(text)
    if value < 3:
        raise ValueError
    return value


_length.__name__ = "length (at least 3)"


def _info(args):
    import keras_bert
    from keras_bert import heads

    model = keras_bert.load(args.model)
    encoder = heads.find_encoder(model)
    output = heads.find_output(model)
    lines = {
        "model": args.model,
        "parameters": f"{model.count_params():,}",
        **{
            key: value
            for key, value in encoder.get_config().items()
            if isinstance(value, (int, float, str)) and not isinstance(value, bool)
        },
    }
    if encoder.preprocessor is not None:
        preprocessor = encoder.preprocessor
        lines["pieces"] = f"{len(preprocessor.vocabulary):,}"
        for option in ("lowercase", "strip_accents", "split_cjk"):
            lines[option] = getattr(preprocessor, option)
    if output is not None:
        lines["task"] = f"{output.task}{' of pairs' if output.pairs else ''}"
        lines["labels"] = ", ".join(output.labels or ())
    width = max(map(len, lines))
    for key, value in lines.items():
        print(f"{key:{width}}  {value}")


def _read(args, path, label=None, limit=None):
    from keras_bert.finetuning import data

    return data.read(
        path,
        text=args.text,
        text_pair=args.text_pair,
        label=label,
        format=args.format,
        header=not args.no_header,
        limit=limit,
    )


def _write(path, text):
    """Writes a file whole or not at all."""
    if path.exists() and not path.is_file():  # such as /dev/stdout
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _finetune(args):
    # The files first: a wrong column should not cost the wait for a model.
    from keras_bert.finetuning import train

    examples = _read(args, args.train, args.label, args.limit)
    dev = _read(args, args.dev, args.label) if args.dev else None
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)

    import keras_bert
    from keras_bert import heads

    encoder = heads.find_encoder(keras_bert.load(args.model))
    model, metrics = train.finetune_classifier(
        encoder,
        examples,
        dev,
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        max_length=args.max_length,
        seed=args.seed,
    )
    keras_bert.save(model, output)
    metrics = {"model": args.model, "train": args.train, "dev": args.dev, **metrics}
    _write(output / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    print(
        f"{len(examples)} examples, {len(heads.find_output(model).labels)} labels, "
        f"{metrics['examples_per_second']:.0f} examples/s"
    )
    if dev is not None:
        print(
            f"accuracy on {args.dev}: {metrics['accuracy']:.3f} "
            f"(the most frequent label alone: {metrics['majority']:.3f})"
        )
    print(f"saved in {output}")


def _predict(args):
    from keras_bert.finetuning.data import Examples
    from keras_bert.finetuning.predict import classify

    if bool(args.texts) == bool(args.input):
        raise ValueError("predict takes texts or --input, one of them")
    if args.output and not pathlib.Path(args.output).absolute().parent.is_dir():
        raise ValueError(f"{args.output}: its folder does not exist")
    if args.input:
        examples = _read(args, args.input)
    else:
        examples = Examples(args.texts, source="the command line")

    import keras_bert

    model = keras_bert.load(args.model)
    with progress() as bar:
        task = bar.add_task("Predicting", total=len(examples))
        answers = classify(
            model,
            examples.texts,
            examples.text_pairs,
            batch_size=args.batch_size,
            on_batch=lambda count: bar.advance(task, count),
        )
    rows = [f"{label}\t{score:.4f}" for label, score in answers]
    if args.output:
        _write(pathlib.Path(args.output), "label\tscore\n" + "".join(f"{row}\n" for row in rows))
    elif args.input:
        print("label\tscore", *rows, sep="\n")
    else:
        for row, text in zip(rows, args.texts, strict=True):
            print(f"{row}\t{text}")


def _export(args):
    import keras_bert

    with waiting("Writing the SavedModel"):
        version = keras_bert.export(keras_bert.load(args.model), args.path)
    print(version)


def main(argv=None):
    """Runs the command line.

    Args:
        argv: the arguments; default: those of the process.

    Returns:
        The exit status: 0, 1 after an error (one line on stderr), 130 after Ctrl-C.

    Example:

    >>> main(["info", "no-such-model"])
    1
    """
    args = _parser().parse_args(argv)
    try:
        with quiet_imports():
            import keras_bert.hub  # noqa: F401
        args.run(args)
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            message = f"{error.filename}: {error.strerror}"
        print("keras-bert:", " ".join(message.split()), file=sys.stderr)
        return 1
    except Exception as error:
        # One line for whatever TensorFlow or the machine (memory, say) throws as well.
        if os.environ.get("KERAS_BERT_TRACEBACK"):
            raise
        lines = str(error).strip().splitlines() or ["no reason given"]
        print(
            f"keras-bert: {type(error).__name__}: {lines[0][:300]} "
            "(KERAS_BERT_TRACEBACK=1 shows where)",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("keras-bert: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
