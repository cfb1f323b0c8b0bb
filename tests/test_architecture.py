"""The map of the house: which module may import what, read from the source with `ast`."""

import ast
import pathlib
import sys
import typing

import pytest

HOUSE = pathlib.Path(__file__).parents[1] / "keras_bert"


class Rule(typing.NamedTuple):
    """The packages, beyond the standard library, that a module may import."""

    at_import: str  # anywhere in it
    in_functions: str = ""  # inside functions only, so that importing the module is cheap


# A module may import only from the ones above it. So the order is the design: what is lower
# knows what is higher, never the other way round.
MAP = {
    # The model: keras alone, on any backend.
    "layers.py": Rule("keras"),
    "encoder.py": Rule("keras"),
    "heads.py": Rule("keras"),
    "optimizers.py": Rule("keras"),
    "files.py": Rule("", "filelock"),
    # Checkpoints are files and arrays; they know no model.
    "checkpoints/canonical.py": Rule("numpy"),
    "checkpoints/folder.py": Rule("numpy"),
    "checkpoints/containers.py": Rule("numpy", "h5py"),
    "checkpoints/keras_file.py": Rule("numpy", "h5py"),
    "checkpoints/tokenizer_config.py": Rule(""),
    "checkpoints/torch_pickle.py": Rule("numpy"),
    "checkpoints/bundle_index.py": Rule("numpy", "google tensorflow"),
    "checkpoints/bundle.py": Rule("numpy", "google tensorflow"),
    "checkpoints/google.py": Rule("numpy", "tensorflow"),
    "checkpoints/model_garden.py": Rule("numpy", "official tf_keras yaml"),
    "checkpoints/saved_model.py": Rule("numpy", "google tensorflow"),
    "checkpoints/huggingface.py": Rule("numpy", "safetensors"),
    "checkpoints/keras_hub.py": Rule("numpy", "h5py keras_hub"),
    "checkpoints/__init__.py": Rule("numpy"),
    # Text is TensorFlow's; the preprocessor alone loads without it, being a part of the encoder.
    "text/__init__.py": Rule(""),
    "text/unicode.py": Rule("numpy"),
    "text/tokenizer.py": Rule("numpy tensorflow"),
    "text/accelerator.py": Rule("numpy tensorflow", "tensorflow_text"),
    "text/preprocessor.py": Rule("keras", "numpy tensorflow"),
    # What a person at a terminal sees; imported before keras, so that it can keep it quiet.
    "console.py": Rule("", "rich"),
    "tensorboard.py": Rule("", "tensorflow"),
    # From a name to a file to a model, and back.
    "conversion.py": Rule("keras numpy", "tensorflow"),
    "download.py": Rule("", "filelock"),
    "sources.py": Rule("", "huggingface_hub kagglehub"),
    "hub.py": Rule("keras numpy", "tensorflow"),
    "distribution.py": Rule("keras", "jax tensorflow"),
    "layout.py": Rule("numpy"),
    # Raw text to what a model learns from.
    "pretraining/__init__.py": Rule(""),
    "pretraining/mediawiki.py": Rule("", "mwparserfromhell"),
    "pretraining/corpus.py": Rule("", "zstandard"),
    "pretraining/sentences.py": Rule(""),
    "pretraining/vocabulary.py": Rule("numpy", "tokenizers"),
    "pretraining/records.py": Rule("numpy", "joblib tensorflow"),
    "pretraining/draws.py": Rule("numpy"),
    "pretraining/pairs.py": Rule("numpy"),
    "pretraining/masking.py": Rule("numpy"),
    "pretraining/packing.py": Rule("numpy"),
    "pretraining/stream.py": Rule("keras numpy"),
    "pretraining/google_records.py": Rule("numpy tensorflow"),
    "pretraining/state.py": Rule("keras numpy", "ml_dtypes"),
    "pretraining/losses.py": Rule("keras"),
    "pretraining/flops.py": Rule("keras numpy", "jax tensorflow torch"),
    "pretraining/train.py": Rule("keras numpy", "matplotlib tensorflow"),
    # The trades.
    "finetuning/__init__.py": Rule(""),
    "finetuning/data.py": Rule(""),
    "finetuning/batches.py": Rule("keras numpy tensorflow"),
    "finetuning/packing.py": Rule("numpy tensorflow"),
    # A task a module, all with the same functions.
    "finetuning/texts.py": Rule("keras numpy tensorflow", "scipy sklearn"),
    "finetuning/choices.py": Rule("keras numpy tensorflow"),
    "finetuning/tagging.py": Rule("keras numpy tensorflow"),
    "finetuning/questions.py": Rule("keras numpy scipy tensorflow"),
    "finetuning/tasks.py": Rule("tensorflow"),
    "finetuning/formats.py": Rule("tensorflow"),
    "finetuning/predict.py": Rule("keras numpy tensorflow"),
    "finetuning/resume.py": Rule("keras numpy"),
    "finetuning/schedule.py": Rule("keras numpy tensorflow"),
    "finetuning/train.py": Rule("keras numpy tensorflow", "rich"),
    "finetuning/search.py": Rule("keras tensorflow"),
    "finetuning/fill.py": Rule("numpy tensorflow"),
    "finetuning/report.py": Rule("numpy", "matplotlib rich sklearn"),
    "serving/__init__.py": Rule(""),
    "serving/production.py": Rule("tensorflow"),
    "serving/answers.py": Rule("tensorflow"),
    "serving/allowed_ops.py": Rule("", "google tensorflow"),
    "serving/hub_layer.py": Rule("keras", "tensorflow"),
    "serving/pair.py": Rule("tensorflow"),
    "serving/card.py": Rule("tensorflow", "google"),
    "serving/export.py": Rule("keras numpy tensorflow"),
    # The local server: what is on the wire, what is in memory, who waits for whom, who listens.
    "serving/rest.py": Rule("numpy"),
    "serving/models.py": Rule("numpy tensorflow", "google"),
    "serving/batching.py": Rule("numpy"),
    "serving/server.py": Rule("starlette uvicorn"),
    # The doors: they may import all of the house, and the command line answers --help at once.
    "commands/__init__.py": Rule(""),
    "commands/arguments.py": Rule(""),
    "commands/reading.py": Rule("tensorflow"),
    "commands/finetuning.py": Rule("numpy tensorflow"),
    "commands/answering.py": Rule("numpy tensorflow"),
    "commands/pretraining.py": Rule("tensorflow", "keras"),
    "commands/models.py": Rule("tensorflow"),
    "commands/serving.py": Rule("tensorflow"),
    "__main__.py": Rule("", "rich"),
    "version.py": Rule(""),
    "__init__.py": Rule(""),
}
DOORS = {name for name in MAP if name.startswith("commands/")} | {"__main__.py", "__init__.py"}

# Tests of the whole, or of what is not in keras_bert/.
TESTS_OF_NO_MODULE = {"architecture", "minilm", "notebooks", "package", "serving_page"}
TESTS_OF_NO_MODULE |= {"examples", "examples_serving"}


class Import(typing.NamedTuple):
    """One imported module: a file of the house, or the name of a package."""

    name: str
    line: int
    in_function: bool

    @property
    def is_ours(self):
        return self.name.endswith(".py")


def file_of(module, name=None):
    """The file behind `from module import name`: that of a submodule `name` if there is one."""
    path = HOUSE.joinpath(*module.split(".")[1:])
    candidates = [path / f"{name}.py", path / str(name) / "__init__.py"] if name else []
    candidates += [path.with_suffix(".py"), path / "__init__.py"]
    found = next((candidate for candidate in candidates if candidate.is_file()), None)
    return found.relative_to(HOUSE).as_posix() if found else f"{module.replace('.', '/')}.py"


def imports(file):
    """Yields every import of a file, wherever it stands."""

    def visit(node, in_function):
        function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                modules = [(alias.name, None) for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                # A relative import has no package here; ruff (TID252) wants them absolute.
                modules = [(child.module or ".", alias.name) for alias in child.names]
            else:
                modules = []
                yield from visit(child, in_function or isinstance(child, function))
            for module, name in modules:
                package = module.split(".")[0]
                found = file_of(module, name) if package == "keras_bert" else package
                if found not in sys.stdlib_module_names:
                    yield Import(found, child.lineno, in_function)

    yield from visit(ast.parse((HOUSE / file).read_text(encoding="utf-8")), False)


def test_every_file_is_on_the_map():
    files = {path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py")}
    assert sorted(files - set(MAP)) == [], "not on the map"
    assert sorted(set(MAP) - files) == [], "on the map, but not there"


@pytest.mark.parametrize("file", MAP)
def test_imports_only_from_above(file):
    above = list(MAP)[: list(MAP).index(file)]
    wrong = [
        f"{file}:{found.line} imports {found.name}"
        for found in imports(file)
        if found.is_ours and found.name not in above and file not in DOORS
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", MAP)
def test_imports_only_the_packages_of_its_rule(file):
    rule = MAP[file]
    wrong = [
        f"{file}:{found.line} imports {found.name}{'' if found.in_function else ' at import'}"
        for found in imports(file)
        if not found.is_ours
        and found.name not in rule.at_import.split()
        and not (found.in_function and found.name in rule.in_functions.split())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", [file for file in MAP if "tensorflow" not in MAP[file].at_import])
def test_tensorflow_does_not_come_in_with_another_module(file):
    wrong = [
        f"{file}:{found.line} imports {found.name}, which imports TensorFlow"
        for found in imports(file)
        if found.is_ours and not found.in_function and "tensorflow" in MAP[found.name].at_import
    ]
    assert not wrong, "\n".join(wrong)


def test_every_test_is_of_one_module():
    modules = set()
    for file in MAP:
        names = file.removesuffix(".py").removesuffix("/__init__").split("/")
        modules |= {names[-1].strip("_"), "_".join(names).strip("_")}
    tests = {
        path.stem.removeprefix("test_") for path in pathlib.Path(__file__).parent.glob("test_*.py")
    }
    assert sorted(tests - modules - TESTS_OF_NO_MODULE) == []


def test_contributing_names_every_module():
    text = (HOUSE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [name for name in MAP if not name.startswith("checkpoints/")]  # those are formats
    missing = [name for name in named if f"{pathlib.Path(name).name}`" not in text]
    assert not missing
