"""What LoRA trained is saved as an adapter of PEFT, whose base is the model that was loaded."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.hub import hub_source
from tests.checkpoints.huggingface_files import INPUTS, VOCABULARY, encoder_tensors, make_folder


def adapted(name, head, rank=2):
    """Return a model with LoRA on a loaded base; all that it trains has large weights."""
    encoder = keras_bert.load(name)
    encoder.enable_lora(rank)
    model = head(encoder)
    for variable in model.trainable_variables:
        values = np.random.default_rng(len(variable.path)).normal(size=variable.shape)
        variable.assign(values)
    return model


def classifier(encoder):
    return heads.classifier(encoder, labels=["0", "1", "2"])


def base(path, pooler=True, **config):
    return make_folder(
        path, encoder_tensors(pooler), VOCABULARY, architectures=["BertModel"], **config
    )


HEADS = {
    "FEATURE_EXTRACTION": (lambda encoder: encoder, "sequence_output"),
    "SEQ_CLS": (classifier, "logits"),
    "TOKEN_CLS": (lambda encoder: heads.tagger(encoder, labels=["0", "1", "2"]), "logits"),
    "QUESTION_ANS": (heads.span_selector, "start_logits"),
}


def output_of(model, name):
    outputs = model(INPUTS)
    return keras.ops.convert_to_numpy(outputs[name] if isinstance(outputs, dict) else outputs)


@pytest.mark.filterwarnings("ignore:.*pooler")
@pytest.mark.parametrize("has_pooler", [True, False])
@pytest.mark.parametrize("task_type", HEADS)
def test_an_adapter_gives_the_model_again(tmp_path, task_type, has_pooler):
    head, output = HEADS[task_type]
    model = adapted(base(tmp_path / "base", has_pooler), head)
    keras_bert.save(model, tmp_path / "adapter", format="peft")
    again = keras_bert.load(tmp_path / "adapter", task="auto")
    expected = output_of(model, output)
    np.testing.assert_allclose(output_of(again, output), expected, atol=1e-5)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("has_pooler", [True, False])
@pytest.mark.parametrize("task_type", HEADS)
def test_peft_computes_the_same(tmp_path, task_type, has_pooler):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    head, output = HEADS[task_type]
    count = 2 if task_type == "QUESTION_ANS" else 3
    model = adapted(base(tmp_path / "base", has_pooler, num_labels=count), head)
    keras_bert.save(model, tmp_path / "adapter", format="peft")
    names = {"SEQ_CLS": "SequenceClassification", "TOKEN_CLS": "TokenClassification"}
    name = f"BertFor{names.get(task_type, 'QuestionAnswering')}"
    name = "BertModel" if task_type == "FEATURE_EXTRACTION" else name
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(theirs, str(tmp_path / "adapter")).eval()
    with torch.no_grad():
        outputs = theirs(torch.tensor(INPUTS["input_word_ids"]))
    found = outputs[output.replace("sequence_output", "last_hidden_state")].numpy()
    np.testing.assert_allclose(found, output_of(model, output), atol=1e-5)


def test_the_name_of_the_base(tmp_path, monkeypatch):
    folder = base(tmp_path / "base")
    monkeypatch.setattr(hub_source, "snapshot", lambda *_: folder)
    keras_bert.save(adapted("hf:org/name@v1", classifier), tmp_path / "a", format="peft")
    config = json.loads((tmp_path / "a/adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("org/name", "v1")


def reloaded(path):
    keras_bert.save(adapted(path, classifier), path / "a.keras")
    return keras_bert.load(path / "a.keras")


def changed(path, name):
    model = adapted(path, classifier)
    [weight] = [weight for weight in model.weights if weight.path.endswith(name)]
    weight.assign(weight + 1)
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: classifier(keras_bert.load(path)), "needs LoRA with one rank"),
        (lambda path: adapted(path, heads.embedder), "cannot hold pooling"),
        (lambda path: adapted(path, heads.multiple_choice), "no type of task .*MultipleChoice"),
        (reloaded, "base in the format of transformers.*a.keras"),
        (lambda path: changed(path, "layer_0/output/kernel"), "layer_0/output/kernel has changed"),
        (lambda path: changed(path, "layer_0/output/bias"), "cannot hold layer_0/output/bias"),
    ],
)
def test_models_that_are_no_adapter(tmp_path, make, message):
    model = make(base(tmp_path / "base"))
    with pytest.raises(ValueError, match=f"{message}.*format="):
        keras_bert.save(model, tmp_path / "adapter", format="peft")
    assert not (tmp_path / "adapter").exists()
