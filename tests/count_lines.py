"""Print the lines of code of the package, by folder: `python -m tests.count_lines`.

With `--check`, only the files and functions over the limits are printed, and the exit status is 1.

Docstrings, comments and empty lines do not count.
"""

import ast
import collections
import io
import pathlib
import sys
import tokenize

ROOT = pathlib.Path(__file__).parents[1]
_MOST_IN_FILE = 450
_MOST_IN_FUNCTION = 50
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def lines_of_code(source):
    """Return the numbers of the lines with code, a set."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_documented = isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False)
        if is_documented:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, docstring.end_lineno + 1))
    return lines


def _first_line_of_body(function):
    """Return the line after the signature: a list of arguments is no code to understand."""
    return function.body[0].lineno


def main():
    per_folder = collections.Counter()
    long = []
    for path in sorted(ROOT.glob("keras_bert/**/*.py")):
        source = path.read_text(encoding="utf-8")
        lines = lines_of_code(source)
        name = path.relative_to(ROOT / "keras_bert")
        per_folder[str(name.parent)] += len(lines)
        if len(lines) > _MOST_IN_FILE:
            long.append(f"{name}: {len(lines)}")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                count = len(lines & set(range(_first_line_of_body(node), node.end_lineno + 1)))
                if count > _MOST_IN_FUNCTION:
                    long.append(f"{name}, {node.name}: {count}")
    if "--check" not in sys.argv:
        for folder, count in per_folder.items():
            print(f"{count:6,}  {folder}")
        print(f"{per_folder.total():6,}  all")
    if long:
        print(f"Files over {_MOST_IN_FILE} and functions over {_MOST_IN_FUNCTION} lines of code:")
        sys.exit("\n".join(long))


if __name__ == "__main__":
    main()
