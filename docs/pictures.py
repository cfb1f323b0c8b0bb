"""Write the pictures of the documentation: _static/NAME.svg and, for dark pages, NAME-dark.svg.

Run `python docs/pictures.py` after a change of `diagrams.py`, `charts.py` or their figures.
"""

import io
import pathlib
import re
import sys

import matplotlib

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from docs import charts, diagrams  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "_static"
CHARTS = (
    charts.answer, charts.attributions, charts.confusion, charts.continued, charts.curves,
    charts.engine_speed, charts.export_speed, charts.few_examples, charts.grid, charts.imbalanced,
    charts.layers, charts.library_speed, charts.long_documents, charts.lora, charts.memory,
    charts.multi_label,
    charts.pretraining, charts.search, charts.similarity, charts.tagging,
)  # fmt: skip
DIAGRAMS = (
    diagrams.architecture, diagrams.attention, diagrams.devices, diagrams.keras_model,
    diagrams.masking, diagrams.multiple_choice, diagrams.packing, diagrams.pair, diagrams.serving,
    diagrams.signature, diagrams.training_step, diagrams.windows,
)  # fmt: skip
INK = {"": "#1f2328", "-dark": "#e6edf3"}  # colors of texts and axes


def write(folder=FOLDER):
    """Write the pictures that changed."""
    folder.mkdir(exist_ok=True)
    for draw in CHARTS + DIAGRAMS:
        for ending, ink in INK.items():
            svg = _svg(draw, ink)
            path = folder / f"{draw.__name__}{ending}.svg"
            # Sphinx reads pages again if the time of a picture has changed.
            if not path.exists() or path.read_bytes() != svg:
                path.write_bytes(svg)


def _svg(draw, ink):
    """Return a figure as SVG with a transparent background. Its description has all texts."""
    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings = {"svg.hashsalt": "keras_bert", "axes.titlesize": 10, **dict.fromkeys(names, ink)}
    with matplotlib.rc_context(settings):
        figure = draw()
        texts = sorted(text.get_text() for text in figure.findobj(matplotlib.text.Text))
        metadata = {"Date": None, "Creator": None, "Description": " ".join(filter(None, texts))}
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    # Without the blanks at the ends of lines, which pre-commit would remove.
    return re.sub(rb"[ \t]+$", b"", stream.getvalue(), flags=re.MULTILINE)


if __name__ == "__main__":
    write()
