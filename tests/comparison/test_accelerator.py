"""benchmarks/accelerator.py answers all its questions, with tiny models on a CPU."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "accelerator.py"
# Figures of one question of each kind, which `--tiny` asks.
FIGURES = {
    "pretrain-base-128": {"utilization", "speed", "peak memory"},
    "finetune-minilm": {"whole time, cold cache", "whole time, warm cache", "steady state"},
    "embeddings": {"whole time, cold cache", "whole time, warm cache", "steady state"},
    "encode": {"speed, sentences", "speed, encyclopedia", "peak memory"},
    "ablations-128": {"speed without attention dropout", "speed random numbers of threefry"},
}


def lines_of(*options):
    command = [sys.executable, SCRIPT, "--tiny", *options]
    output = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in output.stdout.splitlines()]
    assert output.returncode == 0, (lines, output.stderr)
    return lines


@pytest.mark.slow
@pytest.mark.peers
def test_every_kind_of_question_is_answered():
    packages = ("torch", "transformers", "sentence_transformers", "datasets")
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    machine, *lines = lines_of("--seconds", "3600")
    assert machine["versions"]["jax"]
    figures = {}
    for line in lines:
        figures.setdefault(line["question"], {})[line["figure"]] = line
    assert figures.keys() == FIGURES.keys()
    for question, names in FIGURES.items():
        assert names <= figures[question].keys()
    speed = figures["pretrain-base-128"]["speed"]
    assert speed["ratio"] == pytest.approx(speed["keras_bert"] / speed["peer"], rel=1e-2)
    assert speed["ok"] == (speed["ratio"] >= 1.2)


def test_a_question_that_takes_too_long_is_skipped():
    _, line = lines_of("--ours", "--only", "encode", "--seconds", "20")
    assert "needs" in line["skipped"]
