"""`info`, `explain`, `convert` and `export`: describe a model, and write it in other formats."""

import pathlib
import warnings

import keras_bert
from keras_bert import heads, inspect
from keras_bert.cli import options, reading, writing
from keras_bert.inspect import drawing
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import print_line, waiting
from keras_bert.tasks import registry
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.tasks.masked_tokens.masks import MASK


def info(args: options.Info) -> None:
    """Print sizes, vocabulary and labels of a model."""
    model = reading.load(args, task="auto")
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
        source_format=args.source_format,
        trusted=args.trusted,
    )
    parts = ", ".join(["encoder", *sorted(written.groups)])
    print_line(f"{args.to}: {parts}: {len(written.weights)} weights in {args.path}")


def export(args: options.Export) -> None:
    """Write a SavedModel, or a folder for ONNX Runtime or OpenVINO."""
    with waiting("Exporting"):
        model = reading.load(args, task=args.task or "auto")
        dev = None
        if args.dev is not None:
            task = reading.task_of(model)
            columns = reading.columns_of(args, args.model, task)
            dev = reading.read(args.dev, task, columns)
        written = keras_bert.export(
            model,
            args.path,
            format=args.format,
            precision=args.precision,
            quantize=args.quantize,
            dev=dev,
            license=args.license,
        )
    print_line(written)
    folder = pathlib.Path(args.path).expanduser()
    is_pair = written.parent == folder / "encoder"
    if is_pair and heads.find_encoder(model).preprocessor is not None:
        print_line(f"the preprocessor is in {folder / 'preprocess'}")


def explain(args: options.Explain) -> None:
    """Write the attention weights of a text, and the attributions if head and --target allow."""
    writing.check_file(args.output)
    model = reading.load(args, task="auto")
    parts = []
    written = []
    with waiting("Computing"), warnings.catch_warnings():
        warnings.simplefilter("once")  # both parts warn of the same truncated text
        task = registry.find(model)
        if task is None and args.target is not None:  # an encoder: compare its embeddings
            model = as_embedder(model)
            task = registry.for_model(model)
        if task is not None and (args.target is not None or _has_default_target(task, model, args)):
            explained = inspect.attributions(
                model,
                args.text,
                args.text_pair,
                target=_target(model, args.target),
                steps=args.steps,
            )
            parts += ["<h2>Attributions</h2>", drawing.attributions_html(explained)]
            written.append(f"attributions to {explained.target}")
        seen = inspect.attention(model, args.text, args.text_pair)
        parts += ["<h2>Attention</h2>", drawing.attention_html(seen)]
    layers, count = seen.weights.shape[:2]
    written.append(f"attention of {layers} layers with {count} heads")
    path = pathlib.Path(args.output).resolve()  # follow links
    with atomic_write(path) as temporary:
        page = drawing.page(f"What {args.model} looks at", *parts)
        temporary.write_text(page, encoding="utf-8")
    print_line(f"{args.output}: {' and '.join(written)}")


def _has_default_target(task, model, args):
    """Return True if a part of the output can be explained that the user did not choose."""
    if not task.reads_any_texts:
        return not task.reads_encoders and not task.positions_have_targets
    vocabulary = heads.find_encoder(model).preprocessor.vocabulary
    return MASK in vocabulary and MASK in args.text + (args.text_pair or "")


def _target(model, target):
    """Return the target as `attributions` takes it: the index of a word as an integer."""
    is_index = target is not None and target.lstrip("-").isdecimal()
    if is_index and registry.for_model(model).positions_have_targets:
        return int(target)
    return target
