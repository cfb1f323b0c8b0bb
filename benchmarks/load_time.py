"""Question: how long do `import keras_bert` and `load` take, beside their peers?

Each figure is the median over fresh processes that take turns: the import of keras_bert after
that of keras; loading one local MiniLM folder by keras_bert, by KerasHub's `from_preset` and by
transformers, each with and without its tokenizer (ours is made on first use).

    python benchmarks/load_time.py

Needs keras-hub, transformers and torch beside keras_bert.
"""

import argparse
import os
import statistics
import subprocess
import sys

import keras_bert.sources

IMPORT = """
import time, keras
start = time.perf_counter()
import keras_bert
print(time.perf_counter() - start)
"""
LOAD = """
import sys, time
{imports}
start = time.perf_counter()
{load}
print(time.perf_counter() - start)
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
        "keras_hub.models.BertBackbone.from_preset(sys.argv[1]); "
        "keras_hub.models.BertTokenizer.from_preset(sys.argv[1])",
    ),
    "transformers, tokenizer too": (
        "import torch; from transformers import AutoModel, AutoTokenizer",
        "AutoModel.from_pretrained(sys.argv[1]); AutoTokenizer.from_pretrained(sys.argv[1])",
    ),
}


def run(program, *arguments):
    """Seconds that a program prints as its last line."""
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow",
             "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(result.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    folder = str(keras_bert.sources.find("minilm"))
    imports = [run(IMPORT) for _ in range(args.rounds)]
    print(f"import keras_bert after keras: {statistics.median(imports):.3f} s")
    seconds = {name: [] for name in LOADERS}
    for _ in range(args.rounds):
        for name, (imports, load) in LOADERS.items():
            seconds[name].append(run(LOAD.format(imports=imports, load=load), folder))
    for name, values in seconds.items():
        print(f"load MiniLM, {name}: {statistics.median(values):.2f} s")
    for rest in ("", ", tokenizer too"):
        pairs = zip(seconds[f"keras_bert{rest}"], seconds[f"keras_hub{rest}"], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        print(f"keras_bert{rest}: {ratio:.2f} of keras_hub's time")


if __name__ == "__main__":
    main()
