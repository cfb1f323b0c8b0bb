"""`explain`: an HTML page on what a model looks at in a text."""

import pathlib
import warnings

from keras_bert import heads, inspect
from keras_bert.cli import arguments, options, writing
from keras_bert.inspect import drawing, integrated_gradients
from keras_bert.inspect.encoding import MASKED_LM_TASKS
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import print_line, waiting
from keras_bert.tasks import inference
from keras_bert.tasks.masked_lm import MASK


def explain(args: options.Explain) -> None:
    """Write the attention weights of a text, and the attributions if head and --target allow."""
    writing.check_folder(args.output)
    model = arguments.load(args, task="auto")
    parts, written = [], []
    with waiting("Computing"), warnings.catch_warnings():
        warnings.simplefilter("once")  # both parts warn of the same truncated text
        task = heads.find_task(model)
        if task is None and args.target is not None:  # an encoder: compare its embeddings
            model = inference.as_embedder(model)
            task = "embedder"
        has_default_target = task in integrated_gradients.TASKS and task != "embedder"
        if task in MASKED_LM_TASKS:
            vocabulary = heads.find_encoder(model).preprocessor.vocabulary
            texts = (args.text, args.text_pair or "")
            has_default_target = MASK in vocabulary and any(MASK in text for text in texts)
        if has_default_target or args.target is not None:
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


def _target(model, target):
    """Return the target as `attributions` takes it."""
    if target is not None and heads.find_task(model) == "tagger":
        try:
            return int(target)
        except ValueError:
            return target  # which is an error that lists the words
    return target
