"""The page on adding a task: its program runs, and the package finds the new task."""

import pathlib

import pytest

import keras_bert
from keras_bert.tasks import registry
from tests.docs_pages import DOCS, Page


@pytest.fixture
def registered(monkeypatch):
    """A list of tasks that the test may change."""
    monkeypatch.setattr(registry, "TASKS", list(registry.TASKS))


def test_the_page_adds_a_task(registered, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page = Page(pathlib.Path(DOCS, "understand", "adding-a-task.md"))
    names: dict = {}
    for _, program, _ in page.blocks:
        exec(program, names)
    expected = [text for _, _, text in page.blocks if text is not None]
    assert capsys.readouterr().out == "".join(expected)
    assert registry.for_data(names["train"]).name == "rating"
    wrong = names["Ratings"](["good film"], labels=["good"])
    with pytest.raises(ValueError, match="the task rating has no targets for these data"):
        keras_bert.finetune(names["encoder"], wrong, show_progress=False)
