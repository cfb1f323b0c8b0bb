"""Inputs of exported graphs, and the programs in the READMEs of exports."""

import re

import numpy as np

from tests import tiny


def inputs_for(model):
    """Return a batch of random ids with padding; a masked LM predicts each position."""
    generator = np.random.default_rng(0)
    shape = (2, 3, 6) if len(model.input["input_mask"].shape) == 3 else (3, 6)
    length = generator.integers(1, 7, shape[:-1])
    inputs = {
        "input_word_ids": generator.integers(0, len(tiny.PIECES), shape),
        "input_mask": np.arange(6) < length[..., None],
        "input_type_ids": generator.integers(0, 2, shape),
    }
    if "masked_lm_positions" in model.input:
        inputs["masked_lm_positions"] = np.tile(np.arange(6), (3, 1))
    return {name: value.astype(np.int32) for name, value in inputs.items()}


def run_program(folder, monkeypatch, texts=None):
    """Return the answers of the program in a README, for other texts if some are given."""
    page = (folder / "README.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    if texts:
        line = f"texts = {texts!r}"
        program = re.sub(r"^texts = .*", lambda _: line, program, flags=re.MULTILINE)
    names: dict = {}
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        exec(program, names)
    return names["answers"]
