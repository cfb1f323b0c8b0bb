"""Tests of tagged sentences and of their files: CoNLL columns and CoNLL-U."""

import pytest

from keras_bert.tasks.tagging import data as conll
from keras_bert.tasks.tagging.data import TaggedSentences
from tests.tiny import write_file


def test_label_names_are_exactly_the_tags_with_the_outside_tag_first():
    sentences = TaggedSentences([["a", "b", "c"]], [["I-x", "B-a", "O"]])
    assert sentences.label_names() == ["O", "B-a", "I-x"]
    assert TaggedSentences([["a", "b"]], [["PER_B", "-"]]).label_names() == ["-", "PER_B"]
    assert len(sentences) == 1


@pytest.mark.parametrize(
    ("words", "tags", "message"),
    [
        ([["a"], ["b"]], [["O"]], "here: there are 2 sentences, but 1 lists of tags"),
        ([["a"], ["b", "c"]], [["O"], ["O"]], "here, sentence 2: tags .*length .*2; received 1"),
        ([["a"], ["b", 3]], None, "here, sentence 2: words must be strings; received 3"),
        (["ab"], None, "here, sentence 1: words must be a list of strings; received one str"),
        ([["a", "b"]], ["OO"], "here, sentence 1: tags must be a list of strings; received one"),
        ([["a"]], [[None]], "word 1: tags must not be missing"),
        ([["a"]], [[float("nan")]], "word 1: tags must not be missing"),
    ],
)
def test_malformed_sentences_are_rejected(words, tags, message):
    with pytest.raises(ValueError, match=message):
        TaggedSentences(words, tags, source="here")


def test_separators_and_sentence_ends(tmp_path):
    wanted = ([["Ann", "left"], ["Go"]], [["B-PER", "O"], ["O"]])
    for name, text in {
        "tabs": "Ann\tB-PER\nleft\tO\n\nGo\tO\n\n",
        "spaces": "Ann  B-PER \nleft O\n\nGo O",  # no last line end
        "windows": "\ufeffAnn\tB-PER\r\nleft\tO\r\n\r\n\r\nGo\tO\r\n",
        "wnut": "\t\nAnn\tB-PER\nleft\tO\n\t\nGo\tO\n\t\n",  # a tab ends a sentence
    }.items():
        sentences = conll.read(write_file(tmp_path / name, text))
        assert (sentences.words, sentences.tags) == wanted, name
    assert sentences.source == str(tmp_path / "wnut")


def test_columns_are_counted_from_either_end(tmp_path):
    file = write_file(tmp_path / "a", "1 Ann NNP B-NP B-PER\n2 left VBD B-VP O\n")
    assert conll.read(file, word=2).tags == [["B-PER", "O"]]
    assert conll.read(file, word=2, tag=3).tags == [["NNP", "VBD"]]
    assert conll.read(file, word=-4, tag=-2).words == [["Ann", "left"]]
    assert conll.read(file, word=2, tag=None).tags is None


def test_conllu_without_its_extension_is_detected(tmp_path):
    rows = "# sent_id = a\n1\tAnn\tAnn\tPROPN\t_\t_\t2\tnsubj\t_\t_\n"
    for first in ("1-2", "0.1", "1"):
        file = write_file(tmp_path / "a.txt", rows.replace("\n1\t", f"\n{first}\t"))
        with pytest.raises(ValueError, match=r"line 2 looks like .*--format conllu"):
            conll.read(file)
    assert conll.read(file, format="conllu").tags == [["PROPN"]]
    assert conll.read(file, word=2, tag=4).tags == [["PROPN"]]  # explicit columns are read as given
    with pytest.raises(ValueError, match="limit .* at least 1; received 0"):
        conll.read(file, limit=0)


def test_files_of_words_and_limits(tmp_path):
    file = write_file(tmp_path / "a", "# Ann left.\nAnn\nleft\n\n#\ntag\n")
    assert conll.read(file, tag=None).words == [["Ann", "left"], ["#", "tag"]]
    file = write_file(tmp_path / "a", "a O\n\nb O\n\nc\n")  # rows after the limit are not checked
    assert conll.read(file, limit=2).words == [["a"], ["b"]]


def test_json_is_rejected(tmp_path):
    for text in ('{"a": "b c"}\n{"d": "e f"}\n', '{\n  "a": 1\n}\n', "[\n{}\n]\n"):
        with pytest.raises(ValueError, match="line 1 looks like .*--format jsonl"):
            conll.read(write_file(tmp_path / "a", text))


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("text\tlabel\nso good\tgood\nthis is bad\tbad\n", -1),
        ("label\ttext\ngood\tso good\nbad\tthis is bad\n", -1),
        ("So good.\nToo bad!\n", -1),
        ("so good film", None),
        ("我喜欢。\n", None),
    ],
)
def test_texts_are_not_read_as_words(tmp_path, text, tag):
    with pytest.raises(ValueError, match="looks like a file of texts.*--task classification"):
        conll.read(write_file(tmp_path / "a", text), tag=tag)


def test_words_with_further_columns_are_no_texts(tmp_path):
    file = write_file(tmp_path / "a", "Ann NNP B-PER\nleft VBD O\n. . O\n\n")
    assert conll.read(file, tag=None).words == [["Ann", "left", "."]]
    with pytest.raises(ValueError, match="Write one word per line"):
        conll.read(write_file(tmp_path / "b", "0 Ann\n1\n\n"), tag=None)


def test_docstart_ends_a_sentence(tmp_path):
    text = "-DOCSTART- -X- -X- O\n\nAnn NNP I-NP O\n-DOCSTART- -X-\nBob NNP I-NP O\n"
    assert conll.read(write_file(tmp_path / "a", text)).words == [["Ann"], ["Bob"]]


def test_comments_and_words_that_start_with_a_hash(tmp_path):
    # KLUE-NER has one character per row, and comments of one or two columns.
    comments = "## 컬럼명 : CHAR\tNE_TAG\n## 주석 : ##\n## 1\t<한국:LC> #\n"
    korean = "한\tB-LC\n국\tI-LC\n \tO\n#\tO\n"
    sentences = conll.read(write_file(tmp_path / "a", comments + korean))
    assert sentences.words == [["한", "국", " ", "#"]]
    # In tweets, a sentence may start with a hash, and a hash may be a word.
    tweets = "#fail\tO\n#\tO\n##\tO\n\n#\tB-x\n1\tO\n"
    sentences = conll.read(write_file(tmp_path / "b", tweets))
    assert sentences.words == [["#fail", "#", "##"], ["#", "1"]]
    assert conll.read(write_file(tmp_path / "e", "#\tO\n")).words == [["#"]]
    # If spaces separate columns, comments differ in their number of columns.
    spaces = "# id = 3\n# O\n1 O\n"
    assert conll.read(write_file(tmp_path / "c", spaces)).words == [["#", "1"]]
    # Metadata is a comment, however many columns it has; so is a hash in front of an index.
    metadata = "# sent_id = 1\n# newdoc id = 3\n1 Ann NNP B-PER\n# of 4 columns\n2 # SYM O\n"
    sentences = conll.read(write_file(tmp_path / "f", metadata))
    assert (sentences.words, sentences.tags) == ([["Ann", "#"]], [["B-PER", "O"]])
    sentences = conll.read(
        write_file(tmp_path / "g", "# text = Ann\nAnn NNP _ B-PER\n# SYM _ O\n\n")
    )
    assert (sentences.words, sentences.tags) == ([["Ann", "#"]], [["B-PER", "O"]])
    # Comments in GermEval have a tab after the hash.
    german = "#\thttp://x.y [2009-10-17]\n1\tAnn\tB-PER\tO\n"
    assert conll.read(write_file(tmp_path / "d", german), word=2, tag=3).words == [["Ann"]]


def test_words_may_contain_white_space(tmp_path):
    text = "10 000\tNUM\na\u2028b\x85\tX\n\u00a0\tO\n"
    assert conll.read(write_file(tmp_path / "a", text)).words == [
        ["10 000", "a\u2028b\x85", "\u00a0"]
    ]
    text = "10\u00a0000 NUM\n"
    assert conll.read(write_file(tmp_path / "b", text)).words == [["10\u00a0000"]]


CONLLU = """# text = Don't "go"
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\tRB\t_\t1\tadv\t_\t_
3\t#\t#\tSYM\tNN\t_\t1\tdep\t_\t_
3.1\tgone\tgo\tVERB\t_\t_\t_\t_\t_\t_

# sent_id = 2
1\t10 000\t_\tNUM\tCD\tNumForm=Digit\t0\troot\t_\tSpaceAfter=No
"""


def test_conllu(tmp_path):
    file = write_file(tmp_path / "a.conllu", CONLLU)
    sentences = conll.read(file)
    assert sentences.words == [["Do", "n't", "#"], ["10 000"]]
    assert sentences.tags == [["AUX", "PART", "SYM"], ["NUM"]]
    assert conll.read(file, tag=5).tags == [["VBP", "RB", "NN"], ["CD"]]
    assert conll.read(file, tag=6).tags == [["_", "_", "_"], ["NumForm=Digit"]]
    assert conll.read(file, tag=10).tags[1] == ["SpaceAfter=No"]
    assert conll.read(file, word=3, tag=None).words[0] == ["do", "not", "#"]
    other = write_file(tmp_path / "a.txt", CONLLU)
    assert conll.read(other, format="conllu").words == sentences.words


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a", "a\tO\n\nb\n", {}, "a, line 3: must have 2 columns separated by tabs"),
        ("a", "# x y\na O\nb c O\n", {}, "line 3: must have 2 columns separated by spaces"),
        ("a", "a\tO\n#b\n", {}, "a, line 2: must have 2 columns"),
        ("a", "\na\n", {}, "a: word and tag .* 1 to 1, .*; received 1 and -1"),
        ("a", "a O\n", {"tag": 3}, "different numbers of columns, from 1 to 2.*; received 1 and 3"),
        ("a", "a O\n", {"word": 0, "tag": None}, "received 0 and None"),
        ("a", "a\tO\nb\t \n", {}, "a, line 2: the word or the tag is empty"),
        ("a", "-DOCSTART- O\n\n", {}, "a contains no sentences"),
        ("a", b"a\tO\n\n\xe9t\xe9\tO\n", {}, "a, line 3: must be UTF-8; received the byte 0xe9"),
        ("a", b"a\tO\r\nb\tO\rc\tO\r\n", {}, r"a, line 2: lines must end in \\n or \\r\\n"),
        ("a", "a O\n", {"format": "xml"}, "format must be one of conll, .*; received 'xml'"),
        ("a.conllu", "1\ta\n", {}, "line 1: must have 10 columns separated by tabs"),
        ("a.conllu", CONLLU.replace("AUX", "_"), {}, "line 3: the word or the tag is empty"),
        ("a.conllu", CONLLU.replace("3\t#", "x\t#"), {}, "line 5: .* must be an index"),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, content, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        conll.read(write_file(tmp_path / name, content), **options)
    assert "\n" not in str(caught.value)


def test_unknown_tags_are_no_class():
    words = [["Ann", "left", "Oslo"]]
    sentences = TaggedSentences(words, [["B-PER", "-", "O"]])
    assert sentences.label_names() == ["O", "B-PER"]
    assert sentences.counts() == {"words_without_tag": 1}
    assert sentences[:1].tags == sentences.tags == [["B-PER", None, "O"]]
    assert TaggedSentences(words, [[3, -100, 4]]).label_names() == [3, 4]
    assert TaggedSentences(words, [["PER_B", "-", "-"]]).label_names() == ["-", "PER_B"]


def test_file_is_read_in_parts(tmp_path):
    file = write_file(tmp_path / "a.tsv", "Ann\tB-PER\n\nGo\tO\n\nnow\tO\n")
    parts = list(conll.read_in_parts(file, size=2))
    assert [part.words for part in parts] == [[["Ann"], ["Go"]], [["now"]]]
    assert [part.first for part in parts] == [1, 3]


def words_of(folder, text, **options):
    sentences = conll.read(write_file(folder / "a", text), **options)
    return sentences.words, sentences.tags


@pytest.mark.parametrize(
    "text",
    [
        "1\tAnn\tB-PER\n2\tleft\tO\n\n1\t12\tO\n",  # in each sentence
        "0 Ann NNP B-PER\n1 left VBD O\n\n0 12 CD O\n",  # from 0
        "1 Ann B-PER\n2 left O\n\n3 12 O\n",  # through the file
        "1\tAnn\tB-PER\n2\tleft\tO\n1\t12\tO\n",  # without empty lines
        "# text = x\n1\tAnn\tB-PER\n2-3\tleft\tO\n2\tleft\tO\n\n1\t12\tO\n",
        "## 1\n## Ann left\n1\tAnn\tB-PER\n2\tleft\tO\n\n## 2\n1\t12\tO\n",
    ],
)
def test_index_column_is_not_read_as_the_words(tmp_path, text):
    assert words_of(tmp_path, text) == ([["Ann", "left"], ["12"]], [["B-PER", "O"], ["O"]])
    unlabeled = write_file(tmp_path / "b", "1\tAnn\n2\tleft\n")
    assert conll.read(unlabeled, tag=None).words == [["Ann", "left"]]


@pytest.mark.parametrize(
    "text",
    [
        "1\tO\n2\tO\n",  # the tag is not a word
        "1\t0.99\tO\n2\t0.8\tO\n",  # as keras-bert predict writes numbers
        "1 CD O\nof IN O\n2 CD O\n\n",
    ],
)
def test_words_that_are_numbers_are_no_index(tmp_path, text):
    assert words_of(tmp_path, text)[0][0][0] == "1"


def test_column_that_stops_to_number_the_words_is_an_error(tmp_path):
    text = "1 Ann O\n\n" * 150 + "x Bob O\n"
    with pytest.raises(ValueError, match=r"line 301: the first column .* received 'x'.*--word"):
        words_of(tmp_path, text)


def test_column_of_one_value_is_an_error(tmp_path):
    # CoNLL-2012: the first column is the name of the document.
    text = (
        "#begin document (a/b); part 000\n" + "a/b 0 {0} Ann NNP (PERSON)\n" * 5 + "\n#end document"
    )
    with pytest.raises(ValueError, match="first column is 'a/b' in each row; .*--word"):
        words_of(tmp_path, text)
    assert words_of(tmp_path, text, word=4, tag=5)[0] == [["Ann"] * 5]


def test_json_lines_hold_a_sentence_each(tmp_path):
    text = '{"tokens": ["Ann", "left"], "ner": ["B-PER", "O"]}\n{"tokens": ["Go"], "ner": ["O"]}\n'
    file = write_file(tmp_path / "a.jsonl", text)
    sentences = conll.read(file, word="tokens", tag="ner")
    assert sentences.words == [["Ann", "left"], ["Go"]]
    assert sentences.tags == [["B-PER", "O"], ["O"]]
    assert conll.read(file, word="tokens", tag=None).tags is None
    with pytest.raises(ValueError, match=r"line 1: .* 'words'; .* tokens, ner.*--word"):
        conll.read(file)
    with pytest.raises(ValueError, match="must have a list as 'tags'"):
        conll.read(write_file(tmp_path / "c.jsonl", '{"words": ["a"], "tags": "O"}'))


def test_csv_holds_a_word_per_row(tmp_path):
    # A sentence may be named in its first row only.
    text = 'Sentence #,Word,POS,Tag\n1,"Ann, B.",NNP,B-PER\n,left,VBD,O\n2,Go,VB,O\n'
    file = write_file(tmp_path / "a.csv", text)
    sentences = conll.read(file, word="Word", tag="Tag")
    assert sentences.words == [["Ann, B.", "left"], ["Go"]]
    assert sentences.tags == [["B-PER", "O"], ["O"]]
    assert conll.read(file, word="Word", tag=None).words == sentences.words
    with pytest.raises(ValueError, match=r"no column 'word'; .*Word, POS, Tag.*--word"):
        conll.read(file)
    with pytest.raises(ValueError, match="no column 'sentence'"):
        conll.read(write_file(tmp_path / "b.csv", "word,tag\na,O\n"))
    with pytest.raises(ValueError, match="line 2: the word or the tag is empty"):
        conll.read(write_file(tmp_path / "c.csv", "sentence,word,tag\n1,a,\n"))
    with pytest.raises(ValueError, match="line 2: must have 3 fields"):
        conll.read(write_file(tmp_path / "d.csv", "sentence,word,tag\n1,a\n"))
