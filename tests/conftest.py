"""Shared fixtures.

The tests run on the TensorFlow backend. Tests of other backends start a process per backend with
the fixture `python`; see also `contract.py`.
"""

import functools
import gc
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata

import pytest

from keras_bert.runtime.files import cache_folder
from tests import tiny
from tests.webdriver import driver  # noqa: F401

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = pathlib.Path(__file__).parents[1]

# The tests do not write to the user's cache, and read only the downloaded MiniLM from it.
_CACHE = tempfile.TemporaryDirectory(prefix="keras_bert-tests-")
_MINILM = cache_folder() / "minilm"
if _MINILM.is_dir():
    pathlib.Path(_CACHE.name, "minilm").symlink_to(_MINILM)
os.environ["KERAS_BERT_CACHE"] = _CACHE.name


# Keras and TensorFlow keep millions of objects. A collection of garbage that visits them all takes
# seconds, so it is rare, and visits only the objects of one module of tests.
gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="module", autouse=True)
def fewer_objects_to_visit():
    """Leave the objects of earlier modules out of the garbage collection."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip tests that start after `TESTS_END`, in seconds since 1970, which `.ci/run` sets."""
    if time.time() > float(os.environ.get("TESTS_END", "inf")):
        pytest.skip("the time of .ci/run is up")


@pytest.fixture(params=["tensorflow", "jax", pytest.param("torch", marks=pytest.mark.peers)])
def backend(request):
    """Name of each Keras backend; torch is skipped if it is not installed."""
    if request.param == "torch":
        pytest.importorskip("torch")
    return request.param


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """Function that runs Python in a new process and returns its output.

    Warnings are errors there too. Unless `check` is False, the test fails if the exit status is
    not 0.
    """
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # The tests compile many small programs, so compile time matters more than run time.
        "OMP_NUM_THREADS": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
        # Share compiled programs between processes.
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.getbasetemp().parent / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def run(*args, backend="tensorflow", check=True):
        command = [sys.executable, "-W", "error"]
        # Keras 3.15 does not know the copy keyword of NumPy 2.
        command += ["-W", "ignore:__array__ implementation doesn't accept a copy keyword"]
        result = subprocess.run(
            [*command, *map(str, args)],
            cwd=ROOT,
            env={**environment, "KERAS_BACKEND": backend},
            capture_output=True,
            text=True,
        )
        output = result.stdout + result.stderr
        assert result.returncode == 0 or not check, output
        return output

    return run


@pytest.fixture
def hears_ctrl_c():
    """Handle Ctrl-C as Python does, also in a test run that a shell starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def eager():
    """Run compiled models eagerly on TensorFlow, whose graphs take longer than a few tiny steps."""
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        yield
        return
    with tiny.eagerly():
        yield


@pytest.fixture
def untraced():
    """Run TensorFlow's functions eagerly: tracing the graphs of a tokenizer takes a second.

    Not for models and `tf.data`, which warns.
    """
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session", autouse=True)
def one_tokenizer():
    """Share one tokenizer per vocabulary between models, since tracing its graphs takes a second.

    Tests of the tokenizer import the class itself, which is unchanged.
    """
    if not importlib.util.find_spec("tensorflow"):
        yield
        return
    from keras_bert.text import tokenizer

    make = functools.cache(tokenizer.WordPieceTokenizer)

    @functools.wraps(tokenizer.WordPieceTokenizer, updated=())
    def shared(vocabulary, **options):
        return make(tuple(vocabulary), **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "WordPieceTokenizer", shared)
        yield


@pytest.fixture(scope="session")
def check_contract(python):
    """Function that fails the test if `contract.py` fails for a subject on a backend."""

    @functools.cache
    def report(backend):
        return python("-m", "tests.contract", backend=backend, check=False)

    def check(subject, backend):
        output = report(backend)
        assert f"FAILED {subject} " not in output, output
        assert f"ok {subject} " in output, output

    return check


@pytest.fixture(scope="session")
def small_model(tmp_path_factory):
    """A model file: four narrow layers, and a vocabulary of letters that can spell any word."""
    import keras_bert

    letters = [chr(code) for code in range(33, 127) if chr(code).lower() == chr(code)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *letters, *(f"##{letter}" for letter in letters)]
    encoder = keras_bert.BertEncoder(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=4, num_attention_heads=2,
        intermediate_size=32, preprocessor=keras_bert.Preprocessor(vocabulary),
    )  # fmt: skip
    file = tmp_path_factory.mktemp("model") / "letters.keras"
    keras_bert.save(encoder, file)
    return file


@pytest.fixture(scope="session")
def shared():
    """The folder `shared` with real vocabularies and texts; skip the test if it is missing."""
    folder = pathlib.Path(os.environ.get("KERAS_BERT_SHARED", ROOT.parent / "shared"))
    if not (folder / "vocab").is_dir():
        pytest.skip("needs KERAS_BERT_SHARED, a folder with the vocabularies of Google's models")
    return folder


def _vocabulary(words, characters):
    """Return special tokens, characters, words, and characters as suffixes."""
    special = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = list(dict.fromkeys(characters))
    suffixes = ["##" + character for character in characters]
    return list(dict.fromkeys([*special, *characters, *words, *suffixes]))


@pytest.fixture(scope="session")
def vocabularies():
    """Small realistic vocabularies: name -> (tokens, options of the tokenizer)."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    greek = "".join(map(chr, range(0x3B1, 0x3CA)))
    cyrillic = "".join(map(chr, range(0x430, 0x450)))
    punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿·–—‘’“”…、。"
    digits = "0123456789²½"
    kana = "".join(map(chr, [*range(0x3042, 0x3094), *range(0x30A2, 0x30F7)]))
    han = "".join(map(chr, range(0x4E00, 0x4E80))) + "\u3400\u4dbf\u9fff\U00020000\uf900"
    jamo = "".join(
        map(chr, [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)])
    )
    syllables = "".join(map(chr, [*range(0xAC00, 0xAD00, 3), *map(ord, "한국어영화정말재미있다")]))
    words = "the of and in to was he is as for play playing un ##ing ##ed ##able ##s ss i"
    words += " ##aff affable resume naive strasse don ##' ' ##t a1 ##1a km ##km² x [ ] ##] ##[mask"
    words = words.split()
    long = ["a" * 199 + "b", "##" + "b" * 200, "c" * 201, "zz" * 50]
    accented = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþßıœšž"
    alphabet = letters + greek + cyrillic + punctuation + digits + kana + han + jamo + "ßıøæ☃😀"
    alphabet += (
        "\u302e\u302f\U00016ff0\U0001d165\U0001d16d"  # combining, but not stripped as accents
    )
    uncased = _vocabulary(
        [*words, *long, "σοφος", "##ος", "##ς", "ss", "fi", "##\u3099", "가"],
        filter(lambda char: unicodedata.is_normalized("NFD", char), alphabet),
    )
    upper = (letters + accented + greek + cyrillic).upper()
    cased = _vocabulary(
        [*words, *long, *(word.title() for word in words), "USA", "##SA", "Zürich", "I'm"],
        letters + upper + accented + punctuation + digits + "ſK",
    )
    multilingual = _vocabulary(
        [*words, "Łódź", "##ódź", "ΣΟΦΟΣ", "σοφός", "Москва", "##сква", "日", "本", "日本"],
        letters + upper + accented + greek + cyrillic + punctuation + digits + kana + han
        + syllables + jamo + "ािी्\u0301\u0308\u200d\ufe0f😀🏽",
    )  # fmt: skip
    words_of_korean = "한국 한국어 ##국어 ##어 영화 ##화 정말 재미있 ##다 ㅋㅋ ##ㅋㅋㅋ"
    korean = _vocabulary(
        words_of_korean.split(),
        letters + digits + punctuation + syllables + "ㄱㄴㄷㄹㅋㅎㅏㅑㅠㅜ" + jamo + han,
    )
    plain = {"lowercase": False, "strip_accents": False, "split_cjk": True}
    return {
        "uncased": (uncased, {**plain, "lowercase": True, "strip_accents": True}),
        "cased": (cased, plain),
        "multilingual": (multilingual, plain),
        "korean": (korean, {**plain, "lowercase": True}),
        "chinese words": (multilingual, {**plain, "split_cjk": False}),
        "accents only": (uncased, {**plain, "strip_accents": True}),
    }
