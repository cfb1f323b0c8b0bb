"""What LoRA trained is saved as an adapter of PEFT, whose base is the model that was loaded."""

import shutil
from functools import partial

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.hub import hub_source
from tests.checkpoints.huggingface_files import (
    INPUTS,
    VOCABULARY,
    edit_json,
    encoder_tensors,
    make_folder,
)

LABELS = ["0", "1", "2"]
# `task_type` -> head, output, and the end of the class in transformers.
HEADS = {
    "FEATURE_EXTRACTION": (lambda encoder: encoder, "sequence_output", "Model"),
    "SEQ_CLS": (partial(heads.classifier, labels=LABELS), "logits", "ForSequenceClassification"),
    "TOKEN_CLS": (partial(heads.tagger, labels=LABELS), "logits", "ForTokenClassification"),
    "QUESTION_ANS": (heads.span_selector, "start_logits", "ForQuestionAnswering"),
}


def adapted(name, head):
    """Return a model with LoRA on a loaded base; all that it trains has large weights."""
    encoder = keras_bert.load(name)
    encoder.enable_lora(2)
    model = head(encoder)
    for variable in model.trainable_variables:
        variable.assign(np.random.default_rng(len(variable.path)).normal(size=variable.shape))
    return model


def output_of(model, name):
    outputs = model(INPUTS)
    return keras.ops.convert_to_numpy(outputs[name] if isinstance(outputs, dict) else outputs)


def by_keras_bert(path, output, class_name):
    return output_of(keras_bert.load(path / "adapter", task="auto"), output)


def by_peft(path, output, class_name):
    peft = pytest.importorskip("peft")
    base = getattr(pytest.importorskip("transformers"), f"Bert{class_name}").from_pretrained(
        path / "base"
    )
    model = peft.PeftModel.from_pretrained(base, str(path / "adapter")).eval()
    outputs = model(pytest.importorskip("torch").tensor(INPUTS["input_word_ids"]))
    found = outputs[output.replace("sequence_output", "last_hidden_state")].detach().numpy()
    model.save_pretrained(str(path / "theirs"))
    shutil.copytree(path / "base", path / "theirs", dirs_exist_ok=True)  # beside its base
    again = output_of(keras_bert.load(path / "theirs", task="auto"), output)
    np.testing.assert_allclose(again, found, atol=1e-5)
    return found


@pytest.mark.filterwarnings("ignore")  # of new poolers, and of the libraries
@pytest.mark.parametrize("has_pooler", [True, False])
@pytest.mark.parametrize("task_type", HEADS)
@pytest.mark.parametrize("read", [by_keras_bert, pytest.param(by_peft, marks=pytest.mark.peers)])
def test_an_adapter_gives_the_model_again(tmp_path, monkeypatch, read, task_type, has_pooler):
    head, output, class_name = HEADS[task_type]
    config = {"architectures": ["BertModel"], "num_labels": 2 if head is heads.span_selector else 3}
    make_folder(tmp_path / "base", encoder_tensors(has_pooler), VOCABULARY, **config)
    repositories = {("org/name", "v1"): tmp_path / "base"}
    monkeypatch.setattr(
        hub_source, "snapshot", lambda name, revision, _: repositories[name, revision]
    )
    model = adapted("hf:org/name@v1", head)
    keras_bert.save(model, tmp_path / "adapter", format="peft")
    found = read(tmp_path, output, class_name)
    np.testing.assert_allclose(found, output_of(model, output), atol=1e-5)


def reloaded(path):
    keras_bert.save(adapted(path, heads.regressor), path / "a.keras")
    return keras_bert.load(path / "a.keras")


def of_distilbert(path):
    model = adapted(path, heads.regressor)
    edit_json(path / "config.json", model_type="distilbert")
    return model


def changed(path, name):
    model = adapted(path, heads.regressor)
    [weight] = [weight for weight in model.weights if weight.path.endswith(name)]
    weight.assign(weight + 1)
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: heads.regressor(keras_bert.load(path)), "needs LoRA with one rank"),
        (lambda path: adapted(path, heads.embedder), "cannot hold pooling"),
        (lambda path: adapted(path, heads.multiple_choice), "no type of task .*MultipleChoice"),
        (reloaded, "base in the format of transformers"),
        (of_distilbert, "with the model_type 'bert'"),
        (lambda path: changed(path, "layer_0/output/kernel"), "layer_0/output/kernel has changed"),
        (lambda path: changed(path, "layer_0/output/bias"), "cannot hold layer_0/output/bias"),
    ],
)
def test_models_that_are_no_adapter(tmp_path, make, message):
    base = make_folder(tmp_path / "base", encoder_tensors(), VOCABULARY)
    model = make(base)
    with pytest.raises(ValueError, match=f"{message}.*format="):
        keras_bert.save(model, tmp_path / "adapter", format="peft")
    assert not (tmp_path / "adapter").exists()
