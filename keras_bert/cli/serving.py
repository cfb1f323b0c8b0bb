"""`serve`: a local server for SavedModels or a trained model."""

import contextlib
import os
import pathlib
import re
import signal
import tempfile

import keras_bert
from keras_bert.cli import options, reading
from keras_bert.exporting import tf_serving
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.packages import import_extra
from keras_bert.runtime.terminal import print_line, waiting
from keras_bert.server import models, rest


def serve(args: options.Serve) -> None:
    """Serve SavedModels, or a trained model that is exported first, until Ctrl-C."""
    app = import_extra("keras_bert.server.app", "serve", "keras-bert serve")
    # Treat SIGTERM as Ctrl-C, so that temporary files are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not 0 <= args.port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535; received {args.port}")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(app.listen(args.host, args.port))
        locations = models.find(args.model)
        if locations and args.precision:
            raise ValueError("--precision needs a trained model, not a SavedModel. Remove it")
        trusted = args.trusted
        with waiting("Loading"):
            if not locations:
                # Windows cannot delete files that TensorFlow has open.
                folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
                locations = _export(args, stack.enter_context(folder))
                trusted = True  # only this user can write to a temporary folder
            served = [
                models.load(folder, number, trusted, name) for name, number, folder in locations
            ]
        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}"
        for line in _introduction(served, url):
            print_line(line)
        limits = app.Limits(args.max_body, args.max_text, args.max_rows)
        with contextlib.suppress(KeyboardInterrupt):
            app.make(served, args.host, limits).run(sockets=[listener])
        print_line("stopped")


def _export(args, folder):
    """Export a trained model to a temporary folder; return the locations there."""
    # The name of the model must not select the folder: it may be "..".
    path = pathlib.Path(folder, "model")
    keras_bert.export(reading.load(args, task="auto"), path, precision=args.precision)
    locations = models.find(path)
    if len(locations) > 1:  # an encoder is exported with its preprocessor, as two models
        return locations
    name = os.path.basename(os.path.abspath(args.model)).removesuffix(".keras")
    name = re.sub(r"[^\w.-]+", "-", name).strip(".") or "model"
    return [locations[0]._replace(name=name)]


def _introduction(served, url):
    """Yield lines to print: the address, an example request, and what to use in production."""
    yield printable(f"{', '.join(model.name for model in served)}: {url} (Ctrl-C stops)")
    for model in served:
        default = model.signatures.get(rest.DEFAULT_SIGNATURE)
        if default is not None and any(spec.dtype == "string" for spec in default.inputs.values()):
            yield tf_serving.curl(model.name, default.inputs.values(), url, " ")
            break
    yield (
        "For local testing only. In production, use TensorFlow Serving: run docker compose up in "
        "the folder that keras-bert export writes"
    )
