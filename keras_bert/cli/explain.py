"""`explain`: an HTML page on what a model looks at in a text."""

import pathlib
import warnings

from keras_bert import heads, inspect
from keras_bert.cli import arguments, options, writing
from keras_bert.inspect import drawing
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import print_line, waiting
from keras_bert.tasks import registry
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.tasks.masked_tokens.masks import MASK


def explain(args: options.Explain) -> None:
    """Write the attention weights of a text, and the attributions if head and --target allow."""
    writing.check_folder(args.output)
    model = arguments.load(args, task="auto")
    parts, written = [], []
    with waiting("Computing"), warnings.catch_warnings():
        warnings.simplefilter("once")  # both parts warn of the same truncated text
        task = registry.find(model)
        if task is None and args.target is not None:  # an encoder: compare its embeddings
            model = as_embedder(model)
            task = registry.for_model(model)
        if task is not None and (args.target is not None or _has_default_target(task, model, args)):
            found = inspect.attributions(
                model,
                args.text,
                args.text_pair,
                target=_target(model, args.target),
                steps=args.steps,
            )
            parts += ["<h2>Attributions</h2>", drawing.attributions_html(found)]
            written.append(f"attributions to {found.target}")
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
