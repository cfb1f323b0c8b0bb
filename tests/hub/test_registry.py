"""The table of named models."""

import fnmatch
import re

import pytest

from keras_bert.hub import registry

ONLY_ON_HUB = {
    "distilbert", "electra-small", "electra-base", "koelectra-base", "klue-roberta-small",
    "klue-roberta-base", "klue-roberta-large",
}  # fmt: skip


def test_all_models_of_google_are_listed():
    names = "base large base-cased large-cased large-wwm large-cased-wwm "
    names += "base-multilingual-cased base-chinese"
    miniatures = {name for name in registry.MODELS if name.startswith("L-")}
    assert set(registry.MODELS) == {"minilm", *names.split(), *miniatures, *ONLY_ON_HUB}
    assert len(miniatures) == 24
    assert registry.MODELS["L-10_H-512"].archive == "2020_02_20/uncased_L-10_H-512_A-8.zip"
    assert registry.MODELS["L-10_H-512"].repository == "google/bert_uncased_L-10_H-512_A-8"
    for name, source in registry.MODELS.items():
        if source.archive:
            is_of_2018 = source.archive.startswith("2018")
            assert source.hidden_act == ("gelu" if is_of_2018 else "gelu_new"), name


def test_sources_are_consistent():
    for name, source in registry.MODELS.items():
        is_of_klue = name.startswith("klue-")
        assert source.license == ("CC-BY-SA-4.0" if is_of_klue else "Apache-2.0")
        assert source.size > 1e7
        is_korean = is_of_klue or name.startswith("ko")
        assert source.cased == ("cased" in name.split("-") or is_korean)
        hashes = [*source.sha256.values(), *source.archive_sha256.values()]
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes), name
        assert source.revision is None or re.fullmatch("[0-9a-f]{40}", source.revision)
        # Files of a branch may change, so hashes need a fixed revision.
        assert not source.sha256 or source.revision
        if name not in {"minilm", *ONLY_ON_HUB}:
            assert re.fullmatch(r"20\d\d_\d\d_\d\d/\w+_L-\d+_H-\d+_A-\d+\.zip", source.archive)
            # checkpoints/google.py reads from the name whether the model is cased.
            pattern = {True: r"(wwm_|multi_|)cased_", False: r"((wwm_|)uncased|chinese)_"}
            assert re.match(pattern[source.cased], source.archive.partition("/")[2]), name


def test_sizes_equal_those_of_the_files():
    assert registry.MODELS["base"].size == pytest.approx(440449768, rel=1e-3)
    assert registry.MODELS["large"].size == pytest.approx(1344951957, rel=1e-3)


def test_files_of_sentence_transformers_are_downloaded():
    for name in (
        "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json",
        "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors",
    ):  # fmt: skip
        assert any(fnmatch.fnmatch(name, pattern) for pattern in registry.HUB_FILES), name
