"""Tensors in pytorch_model.bin: layouts, types, damage, and attacks."""

import builtins
import contextlib
import os
import pickle
import zipfile
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest

from keras_bert.untrusted import torch_pickle
from tests.checkpoints.pickles import (
    ORDERED_DICT,
    global_name,
    instruction,
    state,
    storage,
    tensor,
    write_archive,
    write_legacy,
)

SIX = np.arange(6, dtype="<f4")


@pytest.mark.parametrize("write", [write_archive, write_legacy])
@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ((0, (2, 3), (3, 1)), SIX.reshape(2, 3)),
        ((0, (3, 2), (1, 3)), SIX.reshape(2, 3).T),
        ((1, (2, 2), (3, 1)), SIX.reshape(2, 3)[:, 1:]),
        ((5, (), ()), np.float32(5)),
        ((2, (1,), (1,)), [2]),
        ((0, (3,), (2,)), [0, 2, 4]),
        ((0, (2, 2), (1, 1)), [[0, 1], [1, 2]]),  # one number at two indices
        ((6, (0, 3), (3, 1)), np.empty((0, 3))),
    ],
)
def test_layouts_of_a_pickled_tensor(tmp_path, write, layout, expected):
    file = tmp_path / "pytorch_model.bin"
    write(file, state(a=tensor(storage("0", 6), *layout)), {"0": SIX.tobytes()})
    found = torch_pickle.read(file)["a"]
    assert found.dtype == np.float32
    assert found.shape == np.shape(expected)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("order", ["little", None])
def test_byte_order_of_an_archive(tmp_path, order):
    file = tmp_path / "pytorch_model.bin"
    program = state(a=tensor(storage("0", 6), 0, (6,), (1,)))
    write_archive(file, program, {"0": SIX.astype("<f4").tobytes()}, order)
    np.testing.assert_array_equal(torch_pickle.read(file)["a"], SIX)
    write_archive(file, program, {"0": SIX.astype(">f4").tobytes()}, "big")
    with pytest.raises(ValueError, match="big-endian"):
        torch_pickle.read(file)


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("DoubleStorage", np.array([1.5, -2], "<f8")),
        ("HalfStorage", np.array([1.5, -2], "<f2")),
        ("BFloat16Storage", np.array([1.5, -2], ml_dtypes.bfloat16)),
        ("LongStorage", np.array([1, -2], "<i8")),
        ("IntStorage", np.array([1, -2], "<i4")),
        ("ShortStorage", np.array([1, -2], "<i2")),
        ("CharStorage", np.array([1, -2], "i1")),
        ("ByteStorage", np.array([1, 2], "u1")),
        ("BoolStorage", np.array([True, False])),
    ],
)
def test_types_of_a_pickled_tensor(tmp_path, kind, array):
    file = tmp_path / "pytorch_model.bin"
    program = state(a=tensor(storage("0", 2, kind), 0, (2,), (1,)))
    write_archive(file, program, {"0": array.tobytes()})
    found = torch_pickle.read(file)["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_parameters_shared_storages_and_metadata(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    parameter = global_name("torch._utils", "_rebuild_parameter") + instruction(
        (tensor(storage("0", 6), 3, (3,), (1,)), True, ORDERED_DICT)
    )
    program = state(a=tensor(storage("0", 6), 0, (3,), (1,)), b=parameter + b"R")
    metadata = b"}" + instruction("_metadata") + ORDERED_DICT + b"sb"
    write_archive(file, program[:-1] + metadata + b".", {"0": SIX.tobytes()})
    found = torch_pickle.read(file)
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], [0, 1, 2])
    np.testing.assert_array_equal(found["b"], [3, 4, 5])


ONE = storage("0", 6)
# The pickled number 2**60. Four such strides of four bytes are 2**64, or 0 in 64 bits.
OVERFLOW = b"\x8a\x08" + (2**60).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (tensor(ONE, 1, (6,), (1,)), "a tensor 'a' that exceeds its storage"),
        (tensor(ONE, 0, (2, 3), (4, 1)), "a tensor 'a' that exceeds its storage"),
        (tensor(ONE, 9, (), ()), "a tensor 'a' that exceeds its storage"),
        (tensor(ONE, 0, (5,), (OVERFLOW,)), "a tensor 'a' that exceeds its storage"),
        (tensor(ONE, -1, (1,), (1,)), "a size or stride that is not a count"),
        (tensor(ONE, 0, (2,), (-1,)), "a size or stride that is not a count"),
        (tensor(ONE, 0, (2, 2), (1,)), "zip() argument 2 is shorter"),
        (tensor(storage("0", 7), 0, (7,), (1,)), "a tensor 'a' that exceeds its storage"),
        (tensor(storage("1", 6), 0, (6,), (1,)), "archive/data/1"),
        (tensor(storage("0", 6, "ComplexStorage"), 0, (6,), (1,)), "the name torch.ComplexStorage"),
        (tensor(storage("0", 6, last=((),)), 0, (6,), (1,)), "a storage of an unknown kind"),
        (tensor(instruction("0"), 0, (6,), (1,)), "a str for a _Storage in its pickle"),
        (instruction(3), "a int named 'a'"),
        (ORDERED_DICT, "a dict named 'a'"),
    ],
)
def test_invalid_tensors(tmp_path, value, message):
    file = tmp_path / "pytorch_model.bin"
    write_archive(file, state(a=value), {"0": SIX.tobytes()})
    with pytest.raises(
        ValueError, match="^.*pytorch_model.bin: must be a dict of tensors"
    ) as error:
        torch_pickle.read(file)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


class Call:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


def attacks(canary):
    """Return two dicts of pickles: attacks that work with `pickle`, and other attacks."""
    code = f"__import__('os').mkdir({str(canary)!r})"
    call = instruction((code,)) + b"R"
    evaluate = Call(builtins.eval, code)
    run = global_name("builtins", "eval") + call
    imported = global_name("builtins", "__import__") + instruction(("os",)) + b"R"
    good = tensor(ONE, 0, (6,), (1,))
    real = {
        "os.system": pickle.dumps(Call(os.system, f"mkdir {canary}"), 2),
        "eval": pickle.dumps(evaluate, 2),
        "protocol 0": pickle.dumps(evaluate, 0),
        "protocol 4": pickle.dumps(evaluate, 4),
        "protocol 5": pickle.dumps(evaluate, 5),
        "in a dict": pickle.dumps({"a": evaluate}, 2),
        "in a tuple of a list of a dict": pickle.dumps({"a": ([evaluate],)}, 2),
        "in an OrderedDict": pickle.dumps(OrderedDict(a=[evaluate]), 2),
        "by getattr": b"\x80\x02"
        + (global_name("builtins", "getattr") + b"(" + imported + instruction("mkdir") + b"tR")
        + (instruction((str(canary),)) + b"R."),
        "by a dotted name": b"\x80\x04"
        + (instruction("os") + instruction("path.os.mkdir") + b"\x93")
        + (instruction((str(canary),)) + b"R."),
        "by a split name": b"\x80\x04"
        + (instruction("builtins") + instruction("eval") + b"\x93" + call + b"."),
        "by INST": b"(" + instruction(code) + b"ibuiltins\neval\n.",
        "by OBJ": b"(" + global_name("builtins", "eval") + instruction(code) + b"o.",
        "in the state of a dict": b"\x80\x02" + ORDERED_DICT + run + b"b.",
    }
    # These attacks need torch, or much time or memory.
    rebuild = global_name("torch._utils", "_rebuild_tensor_v2")
    return real, {
        "instead of a tensor": state(a=run),
        "after a tensor": state(a=good, b=run),
        "among a tensor's arguments": state(a=tensor(run, 0, (6,), (1,))),
        "as a storage's type": state(a=tensor(storage("0", 6, "eval", "builtins"), 0, (6,), (1,))),
        "in the state of the tensors' dict": state(a=good)[:-1] + run + b"b.",
        "by NEWOBJ": b"\x80\x02"
        + global_name("io", "FileIO")
        + instruction((str(canary), "w"))
        + b"\x81.",
        "by an extension code": b"\x80\x02\x82\x01" + call + b".",
        "by torch's own loader": b"\x80\x02"
        + global_name("torch.storage", "_load_from_bytes")
        + call
        + b".",
        "by a dotted name below torch's": b"\x80\x04"
        + (instruction("torch._utils") + instruction("torch.os.mkdir") + b"\x93")
        + (instruction((str(canary),)) + b"R."),
        "a call of a storage's type": b"\x80\x02"
        + global_name("torch", "FloatStorage")
        + call
        + b".",
        "a call of a tensor": b"\x80\x02" + good + call + b".",
        "attributes of a rebuilder": b"\x80\x02"
        + (rebuild + b"}" + instruction("__defaults__") + b")sb."),
        "attributes of the dict's type": b"\x80\x02"
        + (global_name("collections", "OrderedDict") + b"}" + instruction("__call__") + b")sb."),
        "an enormous memo": b"\x80\x02}r\xff\xff\xff\x7fh\x00.",
        "an enormous string": b"\x80\x02X\xff\xff\xff\x7fa.",
        "a key with a slow hash": b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"Ns.",
        "a key of tuples": b"\x80\x02}" + instruction((1, 2)) + b"Ns.",
        "an empty stack": b"\x80\x02s.",
        "a missing mark": b"\x80\x02t.",
        "a missing memo": b"\x80\x02h\x07.",
        "no end": b"\x80\x02}",
        "nothing": b"",
        "no dict": b"\x80\x02].",
    }


def write_bare(file, program, records):
    file.write_bytes(program)


@pytest.mark.parametrize("write", [write_archive, write_legacy, write_bare])
@pytest.mark.parametrize("attack", [name for kind in attacks("") for name in kind])
def test_nothing_in_a_pickle_is_executed(tmp_path, write, attack):
    canary = tmp_path / "canary"
    file = tmp_path / "pytorch_model.bin"
    real, others = attacks(canary)
    write(file, (real | others)[attack], {"0": SIX.tobytes()})
    with pytest.raises(
        ValueError, match="^.*pytorch_model.bin: must be a dict of tensors"
    ) as error:
        torch_pickle.read(file)
    assert "\n" not in str(error.value)
    assert not canary.exists()


@pytest.mark.parametrize("attack", attacks("")[0])
def test_the_attacks_are_real(tmp_path, attack):
    canary = tmp_path / "canary"
    # Some attacks succeed and then raise an error.
    with contextlib.suppress(AttributeError, TypeError):
        pickle.loads(attacks(canary)[0][attack])
    assert canary.exists()


@pytest.mark.parametrize("name", ["model_state_dict", "state_dict", "model"])
def test_the_weights_in_the_checkpoint_of_a_training_script(tmp_path, name):
    file = tmp_path / "pytorch_model.bin"
    weights = state(a=tensor(ONE, 0, (6,), (1,)))[2:-1]  # without the protocol and the end
    write_archive(
        file, state(epoch=instruction(3), optimizer=b"}", **{name: weights}), {"0": SIX.tobytes()}
    )
    with pytest.warns(UserWarning, match=f"pytorch_model.bin: only the entry '{name}'"):
        found = torch_pickle.read(file)
    assert found.keys() == {"a"}
    np.testing.assert_array_equal(found["a"], SIX)


def test_damaged_archives(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    program = state(a=tensor(ONE, 0, (6,), (1,)))
    rule = "pytorch_model.bin: must be a dict of tensors"
    with pytest.raises(FileNotFoundError):
        torch_pickle.read(file)
    write_archive(file, program, {"0": SIX.tobytes()})
    content = file.read_bytes()
    assert torch_pickle.read(file)
    for size in range(0, len(content), 7):
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match=rule):
            torch_pickle.read(file)
    at = content.index(SIX.tobytes())
    file.write_bytes(content[:at] + b"\x01" + content[at + 1 :])
    with pytest.raises(ValueError, match=f"{rule}.*CRC"):
        torch_pickle.read(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", program)
        archive.writestr("b/data.pkl", program)
    with pytest.raises(ValueError, match=f"{rule}.* received a zip file with 2 data.pkl"):
        torch_pickle.read(file)


def test_damaged_legacy_files(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    program = state(a=tensor(ONE, 0, (6,), (1,)))
    rule = "pytorch_model.bin: must be a dict of tensors"
    write_legacy(file, program, {"0": SIX.tobytes()})
    assert torch_pickle.read(file)
    content = file.read_bytes()
    for size in range(0, len(content), 7):
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match=rule):
            torch_pickle.read(file)
    for length in (-1, 5, 7, 2**62):
        write_legacy(file, program, {"0": SIX.tobytes()}, length=length)
        with pytest.raises(ValueError, match=rule):
            torch_pickle.read(file)
    write_legacy(file, program, {"0": SIX.tobytes()}, magic=7)
    with pytest.raises(ValueError, match=f"{rule}.* received a pickle that torch did not write"):
        torch_pickle.read(file)
    endless = b"\x80\x02])" + b"q\x00h\x00\x86" * 60 + b"a."  # slow to hash
    file.write_bytes(content.replace(pickle.dumps(["0"], 2), endless))
    with pytest.raises(ValueError, match=f"{rule}.* received a tuple for a str in its pickle"):
        torch_pickle.read(file)
    write_legacy(file, program, {"1": SIX.tobytes()})
    with pytest.raises(ValueError, match=f"{rule}.* received '1'"):
        torch_pickle.read(file)


@pytest.mark.peers
@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_torch_wrote(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    base = torch.arange(24.0)
    tensors = OrderedDict(
        contiguous=base.reshape(4, 6),
        transposed=base.reshape(4, 6).t(),
        sliced=base.reshape(4, 6)[1:3, 2:5],
        permuted=base.reshape(2, 3, 4).permute(2, 0, 1),
        parameter=torch.nn.Parameter(torch.randn(3, 2)),
        half=torch.randn(5).half(),
        bfloat16=torch.randn(4, 5).bfloat16().t(),
        double=torch.randn(2).double(),
        long=torch.arange(512).expand((1, -1)),
        boolean=torch.tensor([True, False]),
        scalar=torch.tensor(3.0),
        empty=torch.empty(0, 3),
    )
    file = tmp_path / "pytorch_model.bin"
    torch.save(tensors, file, _use_new_zipfile_serialization=zipped)
    found = torch_pickle.read(file)
    assert list(found) == list(tensors)
    for key, value in tensors.items():
        expected = (value.float() if key == "bfloat16" else value).detach().numpy()
        assert str(found[key].dtype) == str(value.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(found[key], expected, err_msg=key)


@pytest.mark.peers
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_all_pickle_protocols(tmp_path, protocol):
    torch = pytest.importorskip("torch")
    file = tmp_path / "pytorch_model.bin"
    module = torch.nn.Linear(3, 2)
    torch.save(module.state_dict(), file, pickle_protocol=protocol)
    found = torch_pickle.read(file)
    np.testing.assert_array_equal(found["weight"], module.weight.detach().numpy())
    torch.save(module, file)
    with pytest.raises(ValueError, match="received the (name|pickle instruction) "):
        torch_pickle.read(file)
