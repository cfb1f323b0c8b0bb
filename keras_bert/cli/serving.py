"""`serve`: a local server for SavedModels or a trained model."""

import contextlib
import os
import pathlib
import re
import signal
import tempfile

import keras_bert
from keras_bert.cli import arguments, options
from keras_bert.exporting import tf_serving
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.terminal import print_line, shell_quoted, waiting
from keras_bert.server import models, rest


def serve(args: options.Serve) -> None:
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
        locations = models.find(args.model, args.name)
        export_first = None
        trusted = args.trusted
        if locations and args.precision:
            raise ValueError(
                f"--precision needs a trained model; {args.model} is a SavedModel. Remove it"
            )
        with waiting("Loading"):
            if not locations:
                # Windows cannot delete files that TensorFlow has open.
                folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
                locations = _export(args, stack.enter_context(folder))
                trusted = True  # only this user can write to a temporary folder
                export_first = f"keras-bert export {shell_quoted(args.model)} FOLDER"
            served = _load(locations, trusted)
        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}"
        for line in _introduction(served, url):
            print_line(line)
        print_line(_advice(locations[0].folder.parent, export_first))
        limits = app.Limits(args.max_body, args.max_text, args.max_rows)
        with contextlib.suppress(KeyboardInterrupt):
            app.make(served, args.host, limits).run(sockets=[listener])
        print_line("stopped")


def _export(args, folder):
    """Export a trained model to a temporary folder; return the locations there."""
    # The name of the model must not select the folder: it may be "..".
    path = pathlib.Path(folder, "model")
    keras_bert.export(arguments.load(args, task="auto"), path, precision=args.precision)
    locations = models.find(path)
    if len(locations) > 1:  # an encoder is exported with its preprocessor, as two models
        return locations
    name = args.name or os.path.basename(os.path.abspath(args.model)).removesuffix(".keras")
    name = re.sub(r"[^\w.-]+", "-", name).strip(".") or "model"
    return [locations[0]._replace(name=name)]


def _load(locations, trusted):
    """Load models. Print which of them cannot be loaded; raise an error if none can."""
    served = []
    for name, number, folder in locations:
        try:
            served.append(models.load(folder, number, trusted, name))
        except ValueError as error:
            if len(locations) == 1:
                raise
            print_line(printable(f"{name} is not served: {error}"))
    if not served:
        raise ValueError(f"none of the {len(locations)} models could be loaded")
    return served


def _introduction(served, url):
    """Yield lines to print: the address, and an example request."""
    yield printable(f"{', '.join(model.name for model in served)}: {url} (Ctrl-C stops)")
    # Prefer a model that takes strings for the example.
    model = next(filter(_takes_strings, served), served[0])
    yield tf_serving.curl_of_row(model.name, model.example(), url)


def _advice(folder, export_first):
    """Return how to serve the model folder in production.

    `export_first` is the command that exports the model to a folder that stays.
    """
    compose = folder / tf_serving.COMPOSE_FILE
    how = "see keras-bert export"
    if export_first is not None:
        how = f"{export_first}, then docker compose with the compose.yaml that it writes"
    elif compose.is_file():
        how = f"docker compose -f {shell_quoted(compose)} up"
    return f"For local testing only. In production, use TensorFlow Serving: {how}"


def _takes_strings(model):
    default = model.signatures.get(rest.DEFAULT_SIGNATURE)
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
