"""Configuration of Sphinx for the documentation."""

import os
import pathlib
import re
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1])]

import generate_reference  # noqa: E402
import markdown_pages  # noqa: E402
import notebooks  # noqa: E402
import repository_address  # noqa: E402
from docutils import nodes  # noqa: E402
from pygments.lexers import TextLexer  # noqa: E402
from sphinx.ext.autodoc.mock import mock  # noqa: E402
from sphinx.search.en import SearchEnglish  # noqa: E402

from keras_bert.version import __version__  # noqa: E402

project = "keras_bert"
author = "The keras3-bert authors"
project_copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"keras_bert {version}"
html_show_copyright = False
html_copy_source = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings use single backticks for code.
default_role = "code"
autodoc_mock_imports = ["apache_beam"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
# Attributes that are also properties would be described twice.
napoleon_use_ivar = True
# Names of other libraries. Their inventories would need a network.
nitpick_ignore_regex = [("py:exc", ".*"), ("py:class", ".*"), ("py:obj", ".*")]


class _Search(SearchEnglish):
    """Also index the beginnings of Korean words, so that a search for 배송 finds 배송이."""

    def split(self, text):
        words = super().split(text)
        korean = [word for word in words if "가" <= word[-1] <= "힣"]
        return words + [word[:end] for word in korean for end in range(1, len(word))]


def _separate_plurals(app, what, name, obj, options, lines):
    """Write `Document`s in a docstring as reStructuredText needs it."""
    lines[:] = [re.sub(r"(`[^`]+`)(?=s\b)", r"\1\\ ", line) for line in lines]


def _link_to_copies(app, docname, source):
    """Replace links to files of the repository by links to their pages of the site."""
    source[0] = generate_reference.link_to_copies(source[0])


def _add_dark_pictures(app, doctree):
    """Show NAME-dark.svg or NAME-dark.png in place of a picture on dark pages."""
    for image in list(doctree.findall(nodes.image)):
        path = pathlib.Path(image["uri"])
        dark = path.with_name(f"{path.stem}-dark{path.suffix}").as_posix()
        folder = pathlib.Path(app.env.doc2path(app.env.docname)).parent
        if (folder / dark).exists():
            copy = image.deepcopy()
            image["classes"].append("only-light")
            copy["classes"].append("only-dark")
            copy["uri"] = dark
            image.parent.insert(image.parent.index(image) + 1, copy)


def _link_to_notebook(app, docname, source):
    """Add a link to the notebook of a page below the title."""
    path = notebooks.path_of(pathlib.Path(app.env.doc2path(docname)))
    if path is None:
        return
    repository = repository_address.address()
    if repository is None:
        link = (
            f"{{download}}`Download this page as a notebook </{os.path.relpath(path, app.srcdir)}>`"
        )
    else:
        name = path.relative_to(generate_reference.ROOT).as_posix()
        link = f"[Open in Colab]({repository_address.colab_address(name, repository)})"
    source[0] = re.sub(r"^(# .*)$", rf"\1\n\n{link}", source[0], count=1, flags=re.MULTILINE)


def _write_markdown(app, exception):
    """Write the pages as Markdown beside the HTML."""
    if exception is None and app.builder.format == "html":
        with mock(autodoc_mock_imports):
            markdown_pages.write(pathlib.Path(app.srcdir), pathlib.Path(app.outdir))


def setup(app):
    """Write generated pages before Sphinx looks for pages."""
    app.connect("source-read", _link_to_copies)
    app.connect("source-read", _link_to_notebook)
    # Before Sphinx collects the pictures of a page.
    app.connect("doctree-read", _add_dark_pictures, priority=400)
    app.add_search_language(_Search)
    app.add_lexer("ipython", TextLexer)  # Pygments knows no `%pip`
    app.connect("autodoc-process-docstring", _separate_plurals)
    app.connect("build-finished", _write_markdown)
    generate_reference.write(pathlib.Path(app.srcdir) / "reference")
