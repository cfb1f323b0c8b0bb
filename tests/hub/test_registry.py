"""The table of named models."""

import re

from keras_bert.hub import registry


def test_sources_are_consistent():
    for name, source in registry.MODELS.items():
        assert source.license == "Apache-2.0"
        assert source.size > 1e7
        assert source.cased == ("cased" in name.split("-"))
        hashes = [*source.sha256.values(), *source.archive_sha256.values()]
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes), name
        assert source.revision is None or re.fullmatch("[0-9a-f]{40}", source.revision)
        # Files of a branch may change, so hashes need a fixed revision.
        assert not source.sha256 or source.revision
        if name != "minilm":
            is_of_2018 = source.archive.startswith("2018")
            assert source.hidden_act == ("gelu" if is_of_2018 else "gelu_new"), name
            assert re.fullmatch(r"20\d\d_\d\d_\d\d/\w+_L-\d+_H-\d+_A-\d+\.zip", source.archive)
            # checkpoints/google.py reads from the name whether the model is cased.
            pattern = {True: r"(wwm_|multi_|)cased_", False: r"((wwm_|)uncased|chinese)_"}
            assert re.match(pattern[source.cased], source.archive.partition("/")[2]), name
