"""Write the reference pages that come from elsewhere: public names, commands, files of the root."""

import argparse
import ast
import importlib
import inspect
import pathlib
import pydoc
import re

import keras_bert
from keras_bert.cli.parser import make_parser

# Packages whose public names are in modules.
_PARTS = {
    "pretraining": (
        "corpus", "sentences", "vocabulary", "records", "masking", "stream", "train",
    ),
}  # fmt: skip
# Classes whose objects a public function returns.
_RETURNED = {
    "pipeline": (
        "keras_bert.tasks.pipeline.Pipeline",
        "keras_bert.tasks.embedding.pipeline.EmbeddingPipeline",
    ),
}
# Public names of modules that `keras_bert` does not import, some of which need other packages.
_OPTIONAL_MODULES = {
    "bulk": ("ReadRows", "Predict", "WriteRows", "Rejected", "ExportHandler", "parquet_schema"),
    "hub.conversion": (
        "from_keras_hub", "to_keras_hub", "from_model_garden", "to_model_garden",
    ),
}  # fmt: skip

ROOT = pathlib.Path(__file__).parents[1]
# File in the repository -> page of the reference.
COPIED = {
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
}


def write(folder):
    """Write `api/`, `commands/` and the copied pages in the folder of the reference."""
    _seen.clear()
    pages = {f"api/{name}.md": _api_page(name) for name in keras_bert.__all__}
    pages |= {f"api/{name}.md": _optional_module_page(name) for name in _OPTIONAL_MODULES}
    pages |= {f"commands/{name}.md": _command_page(parser) for name, parser in commands().items()}
    pages |= {page: _copy(name) for name, page in COPIED.items()}
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads a page again if its time has changed.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in [*folder.glob("api/*.md"), *folder.glob("commands/*.md")]:
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()


def _copy(name):
    """Return a file of the repository with links to pages of the site."""

    def replaced(found):
        text, target = found.groups()
        if target.startswith(("http", "#")):
            return found[0]
        path = (ROOT / name).parent / target
        target = path.resolve().relative_to(ROOT).as_posix()
        # Other files of the repository are not part of the site.
        return f"[{text}]({COPIED[target]})" if target in COPIED else f"`{target}`"

    return re.sub(r"\[([^]]*)\]\(([^)]*)\)", replaced, (ROOT / name).read_text(encoding="utf-8"))


def link_to_copies(text):
    """Replace links to copied files by links to their pages, from the root of the site."""
    for file, page in COPIED.items():
        text = re.sub(rf"\]\((\.\./)+{re.escape(file)}", f"](/reference/{page}", text)
    return text


def _api_page(name):
    """Return the page of a public name of `keras_bert`."""
    item = getattr(keras_bert, name)
    lines = [f"# keras_bert.{name}", ""]
    if not inspect.ismodule(item):
        lines += _directive(f"keras_bert.{name}", item)
        for path in _RETURNED.get(name, ()):
            lines += _directive(path, pydoc.locate(path))
        return "\n".join(lines)
    lines += [inspect.getdoc(item).split("\n\n")[0].replace("\n", " "), ""]
    if name not in _PARTS:
        return "\n".join([*lines, *_members(f"keras_bert.{name}", item)])
    for part in _PARTS[name]:
        module = importlib.import_module(f"{item.__name__}.{part}")
        lines += [f"## {name}.{part}", "", inspect.getdoc(module).split("\n\n")[0], ""]
        lines += _members(module.__name__, module)
    return "\n".join(lines)


def _optional_module_page(name):
    """Return the page of a module in `_OPTIONAL_MODULES`, without importing it."""
    file = ROOT / "keras_bert" / f"{name.replace('.', '/')}.py"
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    lines = [f"# keras_bert.{name}", "", text.split("\n\n")[0].replace("\n", " "), ""]
    for each in _OPTIONAL_MODULES[name]:
        kind = "autoclass" if each[0].isupper() else "autofunction"
        lines += ["```{eval-rst}", f".. {kind}:: keras_bert.{name}.{each}", "```", ""]
    return "\n".join(lines)


def _members(path, module):
    """Return the directives of the functions and classes of a module."""
    names = getattr(module, "__all__", None) or [
        name
        for name, item in vars(module).items()
        if not name.startswith("_") and getattr(item, "__module__", None) == module.__name__
    ]
    items = [(name, getattr(module, name)) for name in names]
    return [
        line
        for name, item in items
        if callable(item) and inspect.getdoc(item)
        for line in _directive(f"{path}.{name}", item)
    ]


_seen: set[int] = set()


def _directive(path, item):
    """Return the lines of an autodoc directive."""
    kind = "autoclass" if inspect.isclass(item) else "autofunction"
    lines = ["```{eval-rst}", f".. {kind}:: {path}"]
    if id(item) in _seen:  # two modules have this name
        lines.append("   :no-index:")
    _seen.add(id(item))
    if not inspect.isclass(item):
        return [*lines, "```", ""]
    # Keras calls these methods, so they are no part of the API.
    public = [
        name
        for name, member in vars(item).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, (classmethod, property)))
        and inspect.getdoc(getattr(item, name))
        and name not in ("call", "build", "get_config", "from_config", "compute_output_shape",
                         "compute_mask", "save_own_variables", "load_own_variables")
    ]  # fmt: skip
    if public:
        lines.append(f"   :members: {', '.join(public)}")
    call = vars(item).get("__call__")
    if call and call.__doc__:
        lines.append("   :special-members: __call__")
    return [*lines, "```", ""]


def commands():
    """Return the parsers of the commands by name."""
    parser = make_parser()
    (action,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return action.choices


def _command_page(parser):
    """Return the page of a command: its description, its usage and its options."""
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
    lines = [f"# {parser.prog}", "", parser.description, ""]
    lines += ["```text", parser.format_usage().strip(), "```", ""]
    for group in parser._action_groups:
        actions = [a for a in group._group_actions if a.help is not argparse.SUPPRESS]
        if not actions:
            continue
        lines += [f"## {group.title.capitalize()}", ""]
        if group.description:
            lines += [group.description, ""]
        formatter = parser._get_formatter()
        for action in actions:
            lines += [f"`{formatter._format_action_invocation(action)}`"]
            lines += [f": {_escaped(formatter._expand_help(action))}" if action.help else ": ", ""]
    if parser.epilog:
        lines += [_escaped(parser.epilog), ""]
    return "\n".join(lines)


def _escaped(text):
    """Escape what Markdown would read as markup."""
    return "".join(f"\\{c}" if c in "\\`*_<>[]#$|~" else c for c in " ".join(text.split()))
