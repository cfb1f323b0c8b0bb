"""`serve`: a local server for SavedModels or a trained model."""

import contextlib
import os
import pathlib
import re
import signal
import tempfile

import keras_bert
from keras_bert.cli import arguments
from keras_bert.exporting import tf_serving
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.terminal import print_line, shell_quoted, waiting
from keras_bert.server import models, rest


def serve(args):
    """Serve SavedModels, or a trained model that is exported first, until Ctrl-C."""
    try:
        from keras_bert.server import app
    except ImportError as error:
        raise ImportError(
            f"keras-bert serve needs {error.name}. Run: pip install 'keras3-bert[serve]'"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(_terminable())
        listener = stack.enter_context(app.listen(args.host, args.port))
        found = models.find(args.model, args.name, trusted=args.trusted)
        with waiting("Loading"):
            export_first = None
            if found and args.precision:
                raise ValueError(
                    f"--precision needs a trained model; {args.model} is a SavedModel. Remove it"
                )
            if not found:
                # Windows cannot delete files that TensorFlow has open.
                folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
                found = _exported(args, stack.enter_context(folder))
                export_first = f"keras-bert export {shell_quoted(args.model)} FOLDER"
            for model in found:
                model.refresh(settled=False)
        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}"
        for line in _introduction(found, url, export_first):
            print_line(line)
        with contextlib.suppress(KeyboardInterrupt):
            limits = app.Limits(args.max_body, args.max_text, args.max_rows)
            app.make(found, args.host, limits).run(sockets=[listener])
        print_line("stopped")


def _exported(args, folder):
    """Export a trained model to a temporary folder; return the models there."""
    # The name of the model must not select the folder: it may be "..".
    path = pathlib.Path(folder, "model")
    keras_bert.export(arguments.load(args, task="auto"), path, precision=args.precision)
    exported = models.find(path, trusted=True)  # only this user can write to a temporary folder
    if len(exported) == 1:  # an encoder is exported with its preprocessor, as two models
        name = args.name or os.path.basename(os.path.abspath(args.model)).removesuffix(".keras")
        exported[0].name = re.sub(r"[^\w.-]+", "-", name).strip(".") or "model"
    return exported


def _introduction(found, url, export_first=None):
    """Yield lines to print: the address, an example request, and how to serve in production.

    `export_first` is the command that exports the model to a folder that stays.
    """
    for model in found:
        if model.current is None:
            state = "; ".join(reason for _, _, (_, reason) in model.states())
            if len(found) == 1:
                raise ValueError(f"{model.folder} could not be loaded: {state}")
            yield printable(f"{model.name} could not be loaded: {state}")
    served = [model for model in found if model.current is not None]
    if not served:
        raise ValueError(f"none of the {len(found)} models could be loaded")
    yield printable(f"{', '.join(model.name for model in served)}: {url} (Ctrl-C stops)")
    # Prefer a model that takes strings for the example.
    for model in ([model for model in served if _takes_strings(model)] or served)[:1]:
        yield tf_serving.curl_of_row(model.name, model.current.example(), url)
    compose = served[0].folder / tf_serving.COMPOSE_FILE
    how = "see keras-bert export"
    if export_first is not None:
        how = f"{export_first}, then docker compose with the compose.yaml that it writes"
    elif compose.is_file():
        how = f"docker compose -f {shell_quoted(compose)} up"
    yield f"For local testing only. In production, use TensorFlow Serving: {how}"


def _takes_strings(model):
    default = model.current.signatures.get(rest.DEFAULT_SIGNATURE)
    return default is not None and any(spec.dtype == "object" for spec in default.inputs.values())


@contextlib.contextmanager
def _terminable():
    """Treat SIGTERM as Ctrl-C, so that temporary files are removed."""

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
