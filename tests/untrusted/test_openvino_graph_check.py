"""Attack: an OpenVINO graph with more than `keras_bert.export` writes."""

import pytest

from keras_bert.untrusted import openvino_graph_check

CONST = (
    '<layer id="0" type="Const"><data element_type="f32" shape="{}" offset="{}" size="{}"/></layer>'
)


def check(tmp_path, layers, before="", edges=""):
    file = tmp_path / "a.xml"
    file.write_text(f"<?xml version='1.0'?>{before}<net><layers>{layers}</layers>{edges}</net>")
    weights = tmp_path / "a.bin"
    weights.write_bytes(b"0" * 24)
    openvino_graph_check.check(file, weights)


def test_deep_models_have_many_weights(tmp_path):
    (tmp_path / "a.xml").write_text(f"<net><layers>{RELUS}</layers></net>")
    (tmp_path / "a.bin").write_bytes(bytes(2**14))
    openvino_graph_check.check(tmp_path / "a.xml", tmp_path / "a.bin")


def test_weights_in_the_file(tmp_path):
    check(tmp_path, CONST.format("2, 3", 0, 24))
    check(tmp_path, CONST.format("", 20, 4))


RELUS = "".join(f'<layer id="{number}" type="ReLU"/>' for number in range(2049))
ENTITIES = """<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;">]>"""


@pytest.mark.parametrize(
    ("layers", "before", "message"),
    [
        ('<layer id="0" type="Loop"/>', "", "the operation 'Loop'"),
        ('<layer id="0" type="\x85evil"/>', "", "the operation"),
        ("<layer id='0'/>", "", "the operation ''"),
        ("", "", "without layers"),
        (CONST.format("2, 3", 4, 24), "", r"shape \[2, 3\] with 24 bytes at 4"),
        (CONST.format("2, 3", -4, 24), "", "at -4"),
        (CONST.format("-2, -3", 0, 24), "", r"shape \[-2, -3\]"),
        (CONST.format("2, 3", 0, 8), "", "with 8 bytes"),
        (CONST.format(f"{10**30}", 0, 4 * 10**30), "", "with 4000"),
        (CONST.replace("f32", "string").format("1", 0, 4), "", "a weight of the type 'string'"),
        ('<layer id="0" type="Add"/>', ENTITIES, "a document type"),
        ('<layer id="0" type="Add">', "", "mismatched tag"),
        ("<rt_info></rt_info>", "", "the element 'rt_info' in layers"),
        ("".join(f'<layer id="{n}" type="Concat"/>' for n in range(9)), "", "9 operations that"),
        (RELUS, "", "2049 operations on weights of 24 bytes"),
        ('<layer id="0" type="ReLU"/>' * 2, "", "two layers of one ID"),
        ('<layer id="0" type="ReLU"><layer id="1" type="ReLU"/></layer>', "", "'layer' in layer"),
        (CONST.format("6", 0, 24).replace("<data", "<data/><data"), "", "'data' in layer"),
    ],
)
def test_what_is_refused(tmp_path, layers, before, message):
    with pytest.raises(Exception, match=message):
        check(tmp_path, layers, before)


def test_a_concat_of_many_inputs(tmp_path):
    ports = "".join(f'<port id="{port}"/>' for port in range(9))
    source = '<layer id="0" type="Parameter"/>'
    layers = f'{source}<layer id="1" type="Concat"><input>{ports}</input></layer>'
    edges = "".join(f'<edge from-layer="0" to-layer="1" to-port="{n}"/>' for n in range(9))
    with pytest.raises(ValueError, match="9 inputs of such an operation, at most 8"):
        check(tmp_path, layers, edges=f"<edges>{edges}</edges>")


def test_a_division_of_integers(tmp_path):
    """OpenVINO ends the process if it overflows."""
    source = '<layer id="0" type="Parameter"><data shape="?"/></layer>'
    divide = '<layer id="1" type="Divide"><input><port id="0"/></input></layer>'
    edges = '<edges><edge from-layer="0" to-layer="1" to-port="0"/></edges>'
    with pytest.raises(ValueError, match="the operation Divide of integers"):
        check(tmp_path, source + divide, edges=edges)
