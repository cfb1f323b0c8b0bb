"""Write each page of the site as Markdown, and `llms.txt`, which lists the pages for programs.

`guides/tagging.md` is written beside `guides/tagging.html`. `llms.txt` follows llmstxt.org.
"""

import inspect
import os
import pydoc
import re

from docs import check_prose, generate_reference, notebooks

_TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_AUTODOC = re.compile(
    r"^```\{eval-rst\}\n\.\. auto\w+:: (\S+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE
)
_INCLUDE = re.compile(
    r"^```\{include\} (\S+)\n:start-after: (.+)\n:end-before: (.+)\n```\n", re.MULTILINE
)
_CARD = re.compile(r":::\{grid-item-card\} (.+)\n(.+)\n:::\n\n?")
# Pictures of directives, and the frame of cards.
_LAYOUT = re.compile(
    r"^```\{image\}.*?^```\n\n|^::::[^\n]*\n(?::[^\n]*\n\n)?", re.DOTALL | re.MULTILINE
)
# A link to a file of the repository that is no page, such as ../../examples/pretrain.py.
_FILE = re.compile(r"\[([^]]*)\]\(\.\./\.\./([^)]*)\)")
_NOTE = "Every page is Markdown. Its HTML has the same address with `.html` in place of `.md`."


def write(source, site):
    """Write the pages in the folder `source`, and `llms.txt`, into the folder of the site."""
    for path in source.rglob("*.md"):
        name = path.relative_to(source).as_posix()
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(markdown(source, name), encoding="utf-8")
    (site / "llms.txt").write_text(llms_txt(source), encoding="utf-8")


def markdown(source, name):
    """Return a page as plain Markdown: with links for a toctree, docstrings for autodoc."""
    text = notebooks.without_title_block(_read(source, name)).lstrip()
    text = _TOCTREE.sub(lambda match: _list_of_links(source, name, match[1]), text)
    text = _AUTODOC.sub(lambda match: _api(match[1], match[2]), text)
    text = _INCLUDE.sub(lambda match: _included(source, name, *match.groups()), text)
    text = _LAYOUT.sub("", _CARD.sub(r"- \1: \2\n", text))
    text = generate_reference.link_to_copies(text)
    root = "../" * name.count("/")
    text = text.replace("](/", f"]({root}")
    text = text.replace(f"]({root}_static/", f"]({root}_images/")  # where Sphinx copies pictures
    return _FILE.sub(r"\1 (`\2`)", text)


def llms_txt(source):
    """Return the text of `llms.txt`: a section for each toctree."""
    title, summary = _title_and_first_sentence(source, "index.md")
    lines = [f"# {title}", "", f"> {summary}", "", _NOTE]
    return "\n".join([*lines, *_sections(source, "index.md"), ""])


def _sections(source, name):
    """Return the lines of the toctrees of a page, and of those of the pages that they list."""
    lines = []
    text = _read(source, name)
    for toctree in _TOCTREE.findall(text):
        caption = re.search(r"^:caption: (.+)$", toctree, re.MULTILINE)
        heading = caption[1] if caption else _paragraphs(text)[0]
        entries = _entries(source, name, toctree)
        lines += ["", f"## {heading}", ""]
        for entry in entries:
            title, sentence = _title_and_first_sentence(source, entry)
            lines.append(f"- [{title}]({entry}): {sentence}")
        for entry in entries:
            lines += _sections(source, entry)
    return lines


def _list_of_links(source, name, toctree):
    """Return the links of a toctree as a list."""
    lines = []
    for entry in _entries(source, name, toctree):
        title = _paragraphs(_read(source, entry))[0]
        lines.append(f"- [{title}]({os.path.relpath(entry, os.path.dirname(name))})\n")
    return "".join(lines)


def _included(source, name, file, start, end):
    """Return the part of a file between two texts."""
    text = _read((source / name).parent, file)
    return text.partition(start)[2].partition(end)[0].strip() + "\n"


def _entries(source, name, toctree):
    """Return the names of the pages that a toctree lists, relative to the source."""
    entries = []
    for line in toctree.splitlines():
        if line and not line.startswith(":"):
            pattern = re.sub(r".*<(.+)>", r"\1", line)  # "Title <path>" or "path"
            paths = sorted((source / name).parent.glob(f"{pattern}.md"))
            entries += [path.relative_to(source).as_posix() for path in paths]
    return entries


def _title_and_first_sentence(source, name):
    """Return the title and the first sentence of a page, or that of its first docstring."""
    text = _read(source, name)
    title, *paragraphs = _paragraphs(text)
    if not paragraphs:
        paragraphs = _paragraphs(inspect.getdoc(pydoc.locate(_AUTODOC.search(text)[1])))
    return title, re.split(r"(?<=[.?!])\s", paragraphs[0])[0]


def _paragraphs(text):
    return [paragraph for _, paragraph in check_prose.paragraphs(text)]


def _read(source, name):
    return (source / name).read_text(encoding="utf-8")


def _api(path, options):
    """Return the signatures and the docstrings of an autodoc directive."""
    item = pydoc.locate(path)
    parts = [_signature_and_docstring(path, item)]
    for names in re.findall(r"members: (.+)", options):
        for member in names.split(", "):
            parts.append(_signature_and_docstring(f"{path}.{member}", getattr(item, member)))
    return "\n".join(parts)


def _signature_and_docstring(path, item):
    signature = ""
    if callable(item):
        signature = inspect.signature(item)
        # The docstring states the types, and annotations show internal modules of Keras.
        parameters = [
            parameter.replace(annotation=parameter.empty)
            for parameter in signature.parameters.values()
        ]
        signature = signature.replace(
            parameters=parameters, return_annotation=inspect.Signature.empty
        )
    return f"```python\n{path}{signature}\n```\n\n{inspect.getdoc(item)}\n"
