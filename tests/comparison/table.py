"""Write the table of docs/coming-from/comparison.md: the lines of each program.

    python -m tests.comparison.table

A line counts if it is not blank, not a comment and not part of an import. The programs are
formatted by ruff with 100 columns. test_comparison.py checks that the table is up to date.
"""

import ast
import pathlib

FOLDER = pathlib.Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "coming-from" / "comparison.md"
START, END = "<!-- lines -->\n", "<!-- end of lines -->\n"
LIBRARIES = ("keras_bert", "transformers", "keras_hub")
TASKS = {
    "fine_tune": "Fine-tune a classifier and print its accuracy on other texts",
    "predict": "Print the labels and scores of two strings",
    "plain_fit": "Fit a classifier with Keras' `fit`, on TensorFlow, JAX and torch",
    "ner": "Fine-tune a tagger on a CoNLL file and print the entities of a string",
    "question_answering": "Fine-tune on a SQuAD file and ask a question",
    "multi_label": "Fine-tune on texts with several labels each, and print those of a string",
    "embeddings": "Embed two strings",
    "search": "Print the five texts of a file that are nearest to a string, with scores",
    "attention": "Draw the attention maps of all layers and heads",
    "early_stopping": "Stop after two epochs without improvement and keep the best weights",
    "extra_heads": "Load an encoder from a file that also has unknown tensors",
    "export": "Export a classifier as a model that takes strings",
}
# A program that a library has no means for does not exist.
NOT_AVAILABLE = {
    ("plain_fit", "transformers"): "its models are PyTorch modules",
    ("export", "transformers"): "its tokenizers are not part of a graph",
    ("ner", "keras_hub"): "no class for the task",
    (
        "question_answering",
        "keras_hub",
    ): "no class for the task, and its tokenizer keeps no offsets",
    ("attention", "keras_hub"): "its encoder layers return no attention weights",
}


def program(task, library):
    """Return the path of a program."""
    return FOLDER / f"{task}_{library}.py"


def count_lines(file):
    """Count the lines of a program that are not blank, not comments and not part of an import."""
    source = file.read_text(encoding="utf-8")
    imports = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    return sum(
        number not in imports and line.strip() != "" and not line.lstrip().startswith("#")
        for number, line in enumerate(source.splitlines(), 1)
    )


def counts(task):
    """Return a dict from library to the number of lines, for the libraries that can do the task."""
    files = {library: program(task, library) for library in LIBRARIES}
    return {
        library: count_lines(file)
        for library, file in files.items()
        if (task, library) not in NOT_AVAILABLE
    }


def rows():
    """Yield the rows of the table."""
    yield "| task | keras_bert | transformers | KerasHub |"
    yield "|---|---|---|---|"
    for task, title in TASKS.items():
        found = counts(task)
        cells = [
            f"[{found[library]}](../../tests/comparison/{program(task, library).name})"
            if library in found
            else f"not available: {NOT_AVAILABLE[task, library]}"
            for library in LIBRARIES
        ]
        yield f"| {' | '.join([title, *cells])} |"


def updated():
    """Return the text of the page with an up-to-date table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    table = "\n".join(rows())
    return f"{before}{START}{table}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(), encoding="utf-8")
