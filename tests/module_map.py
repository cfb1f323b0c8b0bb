"""Write the table of folders and modules of the page on the architecture.

    python -m tests.module_map

tests/test_package.py checks that the table is up to date.
"""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs/understand/architecture.md"
START, END = "<!-- modules -->\n", "<!-- end of modules -->"


def rows():
    """Yield the rows of the table: top-level modules, then folders with their modules."""
    package = ROOT / "keras_bert"
    modules = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
    for path in modules:
        yield f"| `{path.name}` | {_first_line(path)} |"
    for folder in sorted(path.parent for path in package.glob("*/**/__init__.py")):
        names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
        about = _first_line(folder / "__init__.py")
        modules_of_folder = ", ".join(f"`{name}`" for name in names)
        yield f"| `{folder.relative_to(package).as_posix()}/` | {about} {modules_of_folder} |"


def _first_line(path):
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]


def updated():
    """Return the text of the page with an up-to-date table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    table = "\n".join(["| Module | Purpose |", "|---|---|", *rows()])
    return f"{before}{START}{table}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(), encoding="utf-8")
