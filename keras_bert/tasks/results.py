"""Results of pipelines: plain dicts and lists that notebooks show as tables and marked text."""

import itertools
import zlib

from keras_bert.runtime.escaping import html

_COLORS = ("#cfe8ff", "#ffe0b3", "#d5f5d0", "#f8d0e0", "#e3d7fb", "#fff3a8", "#c9f0ee", "#eadfd3")


class Results(list):
    """A list of results, one per input. `column` names one result in a DataFrame."""

    column = "tokens"

    def to_dataframe(self, index=None):
        """Return a `pandas.DataFrame` with a row per result and a column per key."""
        import pandas

        rows = [
            row if isinstance(row, dict) else {getattr(row, "column", "embedding"): row}
            for row in self
        ]
        return pandas.DataFrame(rows, index=index)

    def _repr_html_(self):
        if all(isinstance(row, dict) for row in self):
            return _table(self)
        return "<hr>".join(row._repr_html_() for row in self)


class Labels(Results):
    """The labels of a text, the most probable first."""

    column = "labels"


class Entities(Results):
    """Parts of a text with `start` and `end`, in characters; answers if `label` is `None`."""

    def __init__(self, values, text, label="tag"):
        super().__init__(values)
        self.text = text
        self.label = label
        self.column = "entities" if label else "answers"

    def _repr_html_(self):
        return _marked(self.text, self, self.label)


class Result(dict):
    """The result of a text: a notebook marks an answer in it, and shows others beside it."""

    def __init__(self, values, text):
        super().__init__(values)
        self.text = text

    def _repr_html_(self):
        if "start" in self:
            return _marked(self.text, [self], None)
        return _table([self | {"text": self.text}])


class Metrics(dict):
    """Metrics, with the report of each label."""

    def _repr_html_(self):
        numbers = {key: value for key, value in self.items() if key != "report"}
        report = [{"label": label, **row} for label, row in self.get("report", {}).items()]
        return _table([numbers]) + (_table(report) if report else "")


def _escape(value):
    if isinstance(value, float):
        return f"{value:.3f}"
    return html(str(value))


def _table(rows):
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    head = "".join(f"<th>{_escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_escape(row.get(name, ''))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _marked(text, spans, label):
    """Return a text as HTML with its spans marked.

    Of overlapping spans, only the first in the order of `spans` is marked.
    """
    free = set(range(len(text)))
    kept = []
    for span in spans:
        characters = set(range(span["start"], span["end"]))
        if characters and characters <= free:
            free -= characters
            kept.append(span)
    parts = []
    position = 0
    for span in sorted(kept, key=lambda span: span["start"]):
        name = "" if label is None else str(span[label])
        color = _COLORS[zlib.crc32(name.encode()) % len(_COLORS)]
        note = f" <small>{html(name)} {span['score']:.2f}</small>"
        parts.append(html(text[position : span["start"]]))
        marked = html(text[span["start"] : span["end"]])
        parts.append(f'<mark style="background:{color};color:#000">{marked}{note}</mark>')
        position = span["end"]
    body = "".join([*parts, html(text[position:])])
    return f'<p style="white-space:pre-wrap;line-height:1.7">{body}</p>'
