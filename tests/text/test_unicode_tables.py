"""The frozen tables equal those that Python derives, and agree with the reference."""

import dataclasses
import unicodedata

import numpy as np
import pytest

from keras_bert.text import unicode_tables
from tests.golden import make_unicode_tables
from tests.reference_tokenizer import IDEOGRAPHS, stable

SAME_VERSION = unicodedata.unidata_version == unicode_tables.UNICODE_VERSION


@pytest.fixture(scope="module")
def derived():
    return make_unicode_tables.derive()


@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(unicode_tables.UnicodeTables)]
)
def test_tables_equal_those_that_python_derives(derived, field):
    frozen, found = getattr(unicode_tables.tables(), field), getattr(derived, field)
    if isinstance(frozen, dict):
        keys = frozen.keys() | found.keys()
        differing = [code for code in keys if frozen.get(code) != found.get(code)]
    else:
        assert frozen.shape == (unicode_tables.CODE_POINTS,)
        differing = np.flatnonzero(frozen != found).tolist()
    if SAME_VERSION:
        assert differing == []
    elif field not in ("cased", "case_ignorable"):  # `stable` does not compare these
        assert [code for code in differing if stable(code)] == []


def test_cjk_ranges_are_googles_eight():
    assert [(block[0], block[-1]) for block in IDEOGRAPHS] == list(unicode_tables.CJK_RANGES)
    spaced = {c for first, last in unicode_tables.CJK_RANGES for c in range(first, last + 1)}
    for char, expected in {"中": True, "한": False, "あ": False, "ア": False, "ㄱ": False}.items():
        assert (ord(char) in spaced) == expected
