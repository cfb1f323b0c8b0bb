"""Question: how much time and memory do import and `load` take, compared with the peers?

Measured are the import of keras_bert after the import of keras, and loading one local folder with
keras_bert, with KerasHub's `from_preset` and with transformers, each with and without its tokenizer
(keras_bert creates its tokenizer on first use). The folder holds MiniLM, or with `--base` BERT-base
with random weights, in Hugging Face's format. Each figure is the median over new processes, in
alternation. The memory is the peak of the process minus its memory after the imports, divided by
the size of the weights.

    python benchmarks/load_time.py
    python benchmarks/load_time.py --base

Needs keras-hub, transformers and torch.
"""

import argparse
import importlib.metadata
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import keras_bert
import keras_bert.hub.resolve

IMPORT = """
import time, keras
start = time.perf_counter()
import keras_bert
print(time.perf_counter() - start)
"""
LOAD = """
import sys, time
{imports}
def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key)) * 1024
before = memory("VmRSS")
start = time.perf_counter()
kept = {load}
print(memory("VmHWM") - before, time.perf_counter() - start)
"""
LOADERS = {
    "keras_bert": (
        "import keras_bert, tensorflow; keras_bert.load",
        "keras_bert.load(sys.argv[1])",
    ),
    "keras_bert, tokenizer too": (
        "import keras_bert, tensorflow; keras_bert.load",
        "keras_bert.load(sys.argv[1]).preprocessor.tokenizer",
    ),
    "keras_hub": (
        "import keras_hub, tensorflow_text",
        "keras_hub.models.BertBackbone.from_preset(sys.argv[1])",
    ),
    "keras_hub, tokenizer too": (
        "import keras_hub, tensorflow_text",
        "keras_hub.models.BertBackbone.from_preset(sys.argv[1]), "
        "keras_hub.models.BertTokenizer.from_preset(sys.argv[1])",
    ),
    "transformers": (
        "import torch; from transformers import AutoModel; from transformers import BertModel",
        "AutoModel.from_pretrained(sys.argv[1])",
    ),
    "transformers, tokenizer too": (
        "import torch; from transformers import AutoModel, AutoTokenizer",
        "AutoModel.from_pretrained(sys.argv[1]), AutoTokenizer.from_pretrained(sys.argv[1])",
    ),
}


def run(program, *arguments):
    """Run a program and return the numbers in its last line of output."""
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow",
             "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [float(number) for number in result.stdout.splitlines()[-1].split()]


def write_base(folder):
    """Write BERT-base with random weights and a vocabulary of its size."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += [f"piece{index}" for index in range(30522 - len(pieces))]
    encoder = keras_bert.BertEncoder(preprocessor=keras_bert.Preprocessor(pieces))
    keras_bert.save(encoder, folder, format="huggingface")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--base", action="store_true", help="BERT-base instead of MiniLM")
    args = parser.parse_args()
    names = ("keras", "tensorflow", "keras-hub", "transformers", "torch")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in names))
    imports = [run(IMPORT)[0] for _ in range(args.rounds)]
    print(f"import keras_bert after keras: {statistics.median(imports):.3f} s")
    with tempfile.TemporaryDirectory() as temporary:
        folder = keras_bert.hub.resolve.find("minilm")
        if args.base:
            folder = pathlib.Path(temporary, "base")
            write_base(folder)
        size = (folder / "model.safetensors").stat().st_size
        results = {name: [] for name in LOADERS}
        for _ in range(args.rounds):
            for name, (imports, load) in LOADERS.items():
                program = LOAD.format(imports=imports, load=load)
                results[name].append(run(program, str(folder)))
    for name, rows in results.items():
        memory, seconds = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"load, {name}: {seconds:.2f} s, {memory / size:.2f} of the weights in memory")
    for peer in ("keras_hub", "transformers"):
        for rest in ("", ", tokenizer too"):
            pairs = zip(results[f"keras_bert{rest}"], results[f"{peer}{rest}"], strict=True)
            ratio = statistics.median(ours[1] / theirs[1] for ours, theirs in pairs)
            print(f"keras_bert{rest}: {ratio:.2f} of {peer}'s time")


if __name__ == "__main__":
    main()
