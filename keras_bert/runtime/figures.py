"""Matplotlib figures without pyplot, and text that their fonts can draw."""

import functools
import io

from keras_bert.runtime.escaping import printable

# Fonts with Hangul in order of preference. Matplotlib's default font has no Hangul.
_FONTS = ("NanumGothic", "Noto Sans CJK KR", "Noto Sans KR", "Malgun Gothic", "AppleGothic")


def new_figure(width, height):
    """Return an empty figure; width and height are in inches. Notebooks show it."""
    # pyplot would look for a display and keep each figure in memory.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    # IPython itself knows only figures of pyplot.
    setattr(figure, "_repr_png_", functools.partial(_png, figure))  # noqa: B010
    return figure


def _png(figure):
    """Return a figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def font_families():
    """Return the names of the installed fonts to draw text with, a list."""
    return list(_characters_of_fonts())


def drawable(text):
    r"""Return a text with "?" for control characters and those that no installed font has.

    Example:

    >>> drawable("a b\U0010ffff")
    'a b?'
    """
    known = frozenset().union(*_characters_of_fonts().values())
    return "".join(char if ord(char) in known and printable(char) == char else "?" for char in text)


@functools.cache
def _characters_of_fonts():
    """Return the code points of each font that is used, a dict of sets."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    names = ["DejaVu Sans", *[name for name in _FONTS if name in installed][:1]]
    return {
        name: frozenset(font_manager.get_font(font_manager.findfont(name)).get_charmap())
        for name in names
    }
