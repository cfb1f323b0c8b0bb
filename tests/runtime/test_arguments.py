import numpy as np
import pytest

from keras_bert.runtime.arguments import as_integer


def test_an_integer():
    length = as_integer("sequence_length", np.int64(3), 3)
    assert length == 3 and type(length) is int


@pytest.mark.parametrize("value", [2, 100.7, 3.0, "8", True, None, np.nan])
def test_other_values(value):
    message = f"^sequence_length must be an integer of at least 3; received {value!r}$"
    with pytest.raises(ValueError, match=message):
        as_integer("sequence_length", value, 3)
