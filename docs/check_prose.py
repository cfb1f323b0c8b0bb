"""Find long sentences and words that the style guide excludes.

Run it as `python docs/check_prose.py`. It prints a line for each finding, and exits with 1 if there
is one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
MAX_WORDS = 30
# Metaphors for code, and inversions.
EXCLUDED = (
    r"\bhous(e|ed|es|ing)\b", r"\bdoors?\b", r"\btrades\b", r"\bdesks?\b", r"\brooms?\b",
    r"\bhomes?\b", r"\bneighbou?rs?\b", r"\boracles?\b", r"of which there are none",
    r"counts as none", r"\bso many as\b", r"\bbe it\b", r"as good as never", r"\bwhoever\b",
    r"has to itself", r"\blets go of\b", r"could not be had", r"\bthe likes of\b",
)  # fmt: skip
# Messages of customers in the example data, and titles.
ALLOWED = ("support desk", "room temperature", "housekeeping")


def pages():
    """Return the pages that are checked: all English ones that are not generated."""
    folders = ("docs", "examples", "benchmarks", ".github")
    files = [file for name in folders for file in sorted((ROOT / name).rglob("*.md"))]
    files += [*sorted(ROOT.glob("*.md")), ROOT / "saved_models" / "README.md"]
    generated = ("api/", "commands/", "changelog.md", "results.md", "security.md")
    left_out = ("README.ko.md", "docs/korean/", *(f"docs/reference/{name}" for name in generated))
    return [f for f in files if not f.relative_to(ROOT).as_posix().startswith(left_out)]


def paragraphs(text):
    r"""Yield (line number, paragraph) of the prose: no code, tables, front matter or link targets.

    Example:

    >>> list(paragraphs("# A page\n\nSome [prose](a.md)\nhere.\n"))
    [(1, 'A page'), (3, 'Some prose here.')]
    """
    fence, block, start = None, [], 0
    lines = text.splitlines()
    body = lines.index("---", 1) + 1 if lines[:1] == ["---"] else 0
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        mark = re.match(r"(`{3,}|:{3,})", stripped)
        is_code = fence is not None or number <= body or line.startswith("    ")
        is_code = is_code and (fence is not None or not block)
        if mark and mark[1][0] == "`":
            fence = None if fence else mark[1]
        is_item = re.match(r"(#+|[-*]|\d+\.) ", stripped)
        ends = bool(mark) or is_code or not stripped or stripped[0] in "|<" or bool(is_item)
        if ends and block:
            yield start, " ".join(block)
            block = []
        if not stripped or mark or is_code or stripped[0] in "|<":
            continue
        start = start if block else number
        prose = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", stripped)
        block.append(re.sub(r"^(#+|[-*]|\d+\.) +", "", prose))


def sentences(paragraph):
    """Return the sentences of a paragraph; code counts as one word, and a colon ends a sentence.

    Example:

    >>> sentences("Call `load(a, b)` first. Then train, e.g. with `fit`.")
    ['Call CODE first.', 'Then train, e.g. with CODE.']
    """
    paragraph = re.sub(r"`+[^`]*`+", "CODE", paragraph)
    return re.split(r"(?<=[.!?:])(?<!e\.g\.)(?<!i\.e\.)\s+", paragraph)


def findings(path):
    """Yield a message for each finding of a page."""
    name = path.relative_to(ROOT).as_posix()
    for number, paragraph in paragraphs(path.read_text(encoding="utf-8")):
        for sentence in sentences(paragraph):
            if len(sentence.split()) > MAX_WORDS:
                yield f"{name}:{number}: {len(sentence.split())} words: {sentence}"
        prose = re.sub(r"`+[^`]*`+", "", paragraph)
        for allowed in ALLOWED:
            prose = prose.replace(allowed, "")
        for pattern in EXCLUDED:
            if match := re.search(pattern, prose, re.IGNORECASE):
                yield f"{name}:{number}: excluded by the style guide: {match[0]}"


def main():
    """Print the findings of all pages, and return the exit status."""
    found = [message for page in pages() for message in findings(page)]
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
