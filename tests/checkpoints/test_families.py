"""DistilBERT, ELECTRA and RoBERTa with WordPiece load as the BERT that they are."""

import json
import re
import warnings

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_bert
from keras_bert import heads
from tests import tiny
from tests.checkpoints import numpy_bert
from tests.checkpoints.huggingface_files import (
    IDS,
    INPUTS,
    SIZES,
    VOCABULARY,
    H,
    edit_json,
    encoder_tensors,
    fill,
    make_folder,
    pretraining_tensors,
    write_json,
)
from tests.parameters import fast

CLASSES = {"classifier.weight": (3, H), "classifier.bias": (3,)}
POSITIONS = "bert.embeddings.position_embeddings.weight"
SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
_DISTILBERT = {
    r"^bert\.encoder\.": "distilbert.transformer.",
    r"^bert\.pooler\.dense\.": "pre_classifier.",
    r"^bert\.": "distilbert.",
    r"\.attention\.self\.(.)[a-z]+\.": r".attention.\1_lin.",
    r"\.attention\.output\.dense\.": ".attention.out_lin.",
    r"\.attention\.output\.LayerNorm\.": ".sa_layer_norm.",
    r"\.intermediate\.dense\.": ".ffn.lin1.",
    r"(layer\.\d+)\.output\.dense\.": r"\1.ffn.lin2.",
    r"(layer\.\d+)\.output\.LayerNorm\.": r"\1.output_layer_norm.",
    r"^cls\.predictions\.transform\.dense\.": "vocab_transform.",
    r"^cls\.predictions\.transform\.LayerNorm\.": "vocab_layer_norm.",
    r"^cls\.predictions\.bias": "vocab_projector.bias",
}
_HIDDEN_LAYER = {
    r"^classifier\.": "classifier.out_proj.",
    r"^bert\.pooler\.dense\.": "classifier.dense.",
}
_NAMES = {
    "distilbert": _DISTILBERT,
    "electra": {
        **_HIDDEN_LAYER,
        r"^bert\.": "electra.",
        r"^cls\.predictions\.transform\.": "generator_predictions.",
        r"^cls\.predictions\.bias": "generator_lm_head.bias",
    },
    "roberta": {
        **_HIDDEN_LAYER,
        r"^bert\.": "roberta.",
        r"^cls\.predictions\.transform\.dense\.": "lm_head.dense.",
        r"^cls\.predictions\.transform\.LayerNorm\.": "lm_head.layer_norm.",
        r"^cls\.predictions\.bias": "lm_head.bias",
    },
}
_CLASSES = {"distilbert": "DistilBert", "electra": "Electra", "roberta": "Roberta"}
_ACTIVATIONS = {"distilbert": "relu", "electra": "gelu", "roberta": "tanh"}
# A family, and the width of its embeddings.
FAMILIES = [("distilbert", H), ("electra", H), ("electra", 2), ("roberta", H)]


def write(path, family, width, head, class_name, prefix="", **config):
    """Write a model of a family; return the tensors of the BERT that gives the same outputs."""
    tensors = encoder_tensors("classifier.bias" in head, width) | head
    if family != "electra":
        tensors[SEGMENTS] = tensors[SEGMENTS][:1]
    theirs = dict(tensors)
    sizes = dict(SIZES, type_vocab_size=len(tensors[SEGMENTS]), embedding_size=width)
    if family == "distilbert":
        tensors[SEGMENTS] *= 0
        del theirs[SEGMENTS]
        keys = {
            "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
            "hidden_dim": "intermediate_size",
        }  # fmt: skip
        sizes |= {name: sizes.pop(key) for name, key in keys.items()}
        del sizes["type_vocab_size"], sizes["embedding_size"]
    if family == "roberta":  # [PAD] is the token 0
        sizes["max_position_embeddings"] += 1
        theirs[POSITIONS] = np.concatenate([np.full((1, H), 9, np.float32), tensors[POSITIONS]])
        config["pad_token_id"] = 0
    renamed = {}
    for name, array in theirs.items():
        for pattern, replacement in _NAMES[family].items():
            name = re.sub(pattern, replacement, name)
        renamed[prefix + name] = array
    options = {"model_type": family, "architectures": [f"{_CLASSES[family]}{class_name}"]}
    make_folder(path, renamed, VOCABULARY, **options, **config)
    write_json(path / "config.json", {**sizes, **options, **config})
    return tensors


@pytest.mark.parametrize("prefix", ["", "module.model."])
@pytest.mark.parametrize(("family", "width"), FAMILIES)
def test_encoders(tmp_path, family, width, prefix):
    tensors = write(tmp_path, family, width, {}, "Model", prefix)
    bert = keras_bert.load(tmp_path)
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)
    if width != H:
        assert bert.bert_config["embedding_size"] == width
        with pytest.raises(ValueError, match="embedding_size must be 4"):
            keras_bert.save(bert, tmp_path / "again", format="huggingface")
        return
    keras_bert.save(bert, tmp_path / "again", format="huggingface")
    again = keras_bert.load(tmp_path / "again")
    np.testing.assert_allclose(again(INPUTS)["sequence_output"], expected, atol=2e-5)


def make_head(name, width=H):
    if name == "ForMaskedLM":
        tensors = pretraining_tensors(width)
        return {key: tensors[key] for key in tensors if "relation" not in key}
    if name == "ForQuestionAnswering":
        return fill({"qa_outputs.weight": (2, H), "qa_outputs.bias": (2,)})
    return fill(CLASSES)


SUMMARY = fill({"sequence_summary.summary.weight": (H, H), "sequence_summary.summary.bias": (H,)})
TASKS = {"ForMaskedLM": "masked_tokens", "ForQuestionAnswering": "question_answering"}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(("family", "width"), FAMILIES)
def test_heads_on_tokens(tmp_path, family, width, name):
    tensors = write(tmp_path, family, width, make_head(name, width), name)
    model = keras_bert.load(tmp_path, task="auto")
    assert heads.find_task(model) == TASKS[name]
    sequence = numpy_bert.encode(tensors, SIZES, IDS)
    if name == "ForMaskedLM":
        positions = {"masked_lm_positions": np.tile(np.arange(5), (2, 1))}
        matrix = tensors["bert.embeddings.word_embeddings.weight"]
        bias = tensors["cls.predictions.bias"]
        expected = numpy_bert.predict_tokens(tensors, SIZES, sequence, matrix, bias)
        np.testing.assert_allclose(model(INPUTS | positions), expected, atol=1e-4)
    else:
        expected = sequence @ tensors["qa_outputs.weight"].T + tensors["qa_outputs.bias"]
        logits = np.stack(list(model(INPUTS).values()), axis=-1)
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize(("family", "width"), FAMILIES)
def test_classifiers_have_the_hidden_layer_of_their_family(tmp_path, family, width):
    """It takes the place of the pooler, in every export, too; other formats have tanh there."""
    activation = _ACTIVATIONS[family]
    theirs = tmp_path / "theirs"
    tensors = write(theirs, family, width, fill(CLASSES), "ForSequenceClassification")
    model = keras_bert.load(theirs, task="auto")
    cls = numpy_bert.encode(tensors, SIZES, IDS)[:, 0]
    hidden = cls @ tensors["bert.pooler.dense.weight"].T + tensors["bert.pooler.dense.bias"]
    hidden = {**numpy_bert.ACTIVATIONS, "tanh": np.tanh}[activation](hidden)
    expected = hidden @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    np.testing.assert_allclose(model(INPUTS), expected, atol=1e-4)
    assert heads.find_encoder(model).bert_config["pooler_act"] == activation
    keras_bert.save(model, tmp_path / "mine.keras")
    again = keras_bert.load(tmp_path / "mine.keras")
    np.testing.assert_allclose(again(INPUTS), expected, atol=1e-4)
    for format in ("saved_model", "onnx"):
        keras_bert.export(model, tmp_path / format, format=format)  # it compares the answers
    if activation == "tanh":
        keras_bert.save(model, tmp_path / "bert", format="huggingface")
        again = keras_bert.load(tmp_path / "bert", task="auto")
        np.testing.assert_allclose(again(INPUTS), expected, atol=1e-4)
    else:
        for format in ("huggingface", "google", "keras_hub"):
            with pytest.raises(ValueError, match="pooler_act|hidden_act"):
                keras_bert.save(model, tmp_path / format, format=format)


@pytest.mark.parametrize("model", fast(FAMILIES, ("electra", 2)))
def test_training_goes_on(tmp_path, model):
    """With LoRA in all layers, also in that after narrow embeddings."""
    family, width = model
    write(tmp_path, family, width, {}, "Model")
    bert = keras_bert.load(tmp_path, rematerialize=True)
    bert.enable_lora(2)
    projection = bert.get_layer("embeddings").projection
    assert (projection is not None and projection.lora_enabled) == (width != H)
    train = keras_bert.Examples(["a b", "c d"] * 4, labels=["yes", "no"] * 4)
    model, _ = keras_bert.finetune(bert, train, epochs=1, contrastive=False, show_progress=False)
    keras_bert.save(model, tmp_path / "mine.keras")
    again = keras_bert.load(tmp_path / "mine.keras")
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-5)


@pytest.mark.parametrize(
    ("family", "prefix"), [("distilbert", ""), *((family, "bert.") for family in _NAMES)]
)
def test_an_adapter_of_a_bert_is_no_adapter_of_another_family(tmp_path, family, prefix):
    """The adapter's names would become those of the base, whose names became BERT's."""
    write(tmp_path, family, H, {}, "Model")
    write_json(tmp_path / "adapter_config.json", {"peft_type": "LORA", "lora_alpha": 1})
    name = f"base_model.model.{prefix}encoder.layer.0.attention.self.query"
    factors = {f"{name}.lora_{x}.weight": np.ones((H, H), np.float32) for x in "AB"}
    save_file(factors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="must have the names of its base"):
        keras_bert.load(tmp_path)


def test_a_tagger_on_another_family_is_saved_as_bert(tmp_path):
    write(tmp_path / "theirs", "distilbert", H, fill(CLASSES), "ForSequenceClassification")
    encoder = keras_bert.load(tmp_path / "theirs")
    model = heads.tagger(encoder, labels=["O", "X"])
    keras_bert.save(model, tmp_path / "bert", format="huggingface")
    again = keras_bert.load(tmp_path / "bert", task="auto")
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-5)


@pytest.mark.parametrize("name", ["ForSequenceClassification", "ForTokenClassification"])
def test_a_tagger_of_distilbert_has_the_dropout_of_its_encoder(tmp_path, name):
    write(tmp_path, "distilbert", H, fill(CLASSES), name, seq_classif_dropout=0.3)
    model = keras_bert.load(tmp_path, task="auto")
    assert model.get_layer("dropout").rate == (0.3 if "Sequence" in name else 0.1)


def test_a_converted_masked_lm_keeps_the_dropout_of_classifiers(tmp_path):
    head = make_head("ForMaskedLM")
    write(tmp_path / "theirs", "distilbert", H, head, "ForMaskedLM", seq_classif_dropout=0.3)
    keras_bert.convert(tmp_path / "theirs", tmp_path / "bert", format="huggingface")
    model = keras_bert.load(tmp_path / "bert", task="tagging", fresh_head=True, labels=["O", "X"])
    assert model.get_layer("dropout").rate == 0.3


def test_a_discriminator_gives_its_encoder(tmp_path):
    head = fill({"discriminator_predictions.dense.weight": (H, H)})
    tensors = write(tmp_path, "electra", 2, head, "ForPreTraining")
    with pytest.warns(UserWarning, match="its head discriminator_predictions is left out"):
        bert = keras_bert.load(tmp_path)
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)


def test_classes_without_a_type_and_keys_without_a_meaning(tmp_path):
    """Transformers has a constant epsilon in DistilBERT, and no key for the pooler."""
    options = {"layer_norm_eps": 0.1, "pooler_act": "relu"}
    tensors = write(tmp_path, "distilbert", H, {}, "Model", **options)
    edit_json(tmp_path / "config.json", model_type=None, architectures=["TFDistilBertModel"])
    bert = keras_bert.load(tmp_path)
    assert bert.bert_config["pooler_act"] == "tanh"
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)
    (tmp_path / "model.safetensors").rename(tmp_path / "tf_model.h5")
    with pytest.raises(ValueError, match="must be model.safetensors"):
        keras_bert.load(tmp_path)


def test_the_padding_of_a_roberta_is_that_of_its_tokenizer(tmp_path):
    write(tmp_path, "roberta", H, {}, "Model")
    edit_json(tmp_path / "config.json", pad_token_id=4)
    with pytest.raises(ValueError, match=r"its token 4, the pad_token_id .* must be \[PAD\]"):
        keras_bert.load(tmp_path)


@pytest.mark.parametrize(
    ("family", "name", "head", "config"),
    [
        ("electra", "ForMaskedLM", make_head("ForMaskedLM"), {"hidden_act": "relu"}),
        ("roberta", "ForMaskedLM", make_head("ForMaskedLM"), {"hidden_act": "relu"}),
        ("electra", "ForMultipleChoice", SUMMARY, {"summary_activation": None}),
        ("electra", "ForMultipleChoice", SUMMARY, {"summary_use_proj": False}),
    ],
)
def test_heads_with_other_functions_are_left_out(tmp_path, family, name, head, config):
    write(tmp_path, family, H, head, name, **config)
    (key,) = config
    with pytest.warns(UserWarning, match=f"its head is left out: .*{key} must be (gelu|True)"):
        keras_bert.load(tmp_path)


@pytest.mark.parametrize("size", [1, "2", 0])
def test_the_width_of_the_embeddings_is_that_of_the_weights(tmp_path, size):
    write(tmp_path, "electra", 2, {}, "Model")
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    del config["embedding_size"]
    write_json(tmp_path / "config.json", config)
    assert keras_bert.load(tmp_path).bert_config["embedding_size"] == 2
    edit_json(tmp_path / "config.json", embedding_size=size)
    with pytest.raises(ValueError, match="embedding_size must be a positive|wrong shape"):
        keras_bert.load(tmp_path)


# Keys of config.json that the models of a family have in common.
_KEYS = {
    "DistilBert": {
        "model_type": "distilbert", "activation": "gelu", "attention_dropout": 0.1, "dropout": 0.1,
        "initializer_range": 0.02, "pad_token_id": 0, "qa_dropout": 0.1, "seq_classif_dropout": 0.2,
        "sinusoidal_pos_embds": False, "tie_weights_": True,
    },
    "Electra": {
        "model_type": "electra", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
        "summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first",
        "summary_use_proj": True, "type_vocab_size": 2, "embedding_size": 8,
    },
    "Roberta": {
        "model_type": "roberta", "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
        "eos_token_id": 2, "gradient_checkpointing": False, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
        "pad_token_id": 1, "position_embedding_type": "absolute", "use_cache": True,
        "tokenizer_class": "BertTokenizer", "type_vocab_size": 1,
    },
    "Bert": {
        "model_type": "bert", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
        "pad_token_id": 0, "position_embedding_type": "absolute", "type_vocab_size": 2,
    },
}  # fmt: skip


def labels(*names):
    return {"id2label": {str(index): name for index, name in enumerate(names)}}


_ENTITIES = labels("O", "B-PER", "I-PER")
_NARROW = {"embedding_size": 4}  # the width of the model is 8
_WIDE = {"embedding_size": 12}
_RERANKER = labels("LABEL_0") | {
    "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}
}
# Repository on the Hugging Face Hub -> class in transformers, and keys of config.json.
LAYOUTS = {
    "distilbert/distilbert-base-uncased": ("DistilBertForMaskedLM", {}),
    "distilbert/distilbert-base-cased": ("DistilBertForMaskedLM", {"output_past": True}),
    "distilbert/distilbert-base-multilingual-cased": ("DistilBertForMaskedLM", {}),
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english":
        ("DistilBertForSequenceClassification",
         {"finetuning_task": "sst-2", "output_past": True, **labels("NEGATIVE", "POSITIVE")}),
    "distilbert/distilbert-base-cased-distilled-squad": ("DistilBertForQuestionAnswering", {}),
    "typeform/distilbert-base-uncased-mnli":
        ("DistilBertForSequenceClassification", labels("ENTAILMENT", "NEUTRAL", "CONTRADICTION")),
    "elastic/distilbert-base-uncased-finetuned-conll03-english":
        ("DistilBertForTokenClassification", _ENTITIES),
    "dslim/distilbert-NER": ("DistilBertForTokenClassification", _ENTITIES),
    "Davlan/distilbert-base-multilingual-cased-ner-hrl":
        ("DistilBertForTokenClassification", {"output_past": True, **_ENTITIES}),
    "sentence-transformers/msmarco-distilbert-base-v4": ("DistilBertModel", {}),
    "opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill":
        ("DistilBertForMaskedLM", {}),
    "google/electra-small-discriminator": ("ElectraForPreTraining", _NARROW),
    "google/electra-base-discriminator": ("ElectraForPreTraining", {}),
    "google/electra-small-generator": ("ElectraForMaskedLM", _NARROW),
    "google/electra-base-generator": ("ElectraForMaskedLM", _WIDE),
    "monologg/koelectra-small-v3-discriminator": ("ElectraForPreTraining", _NARROW),
    "monologg/koelectra-base-v3-discriminator": ("ElectraForPreTraining", {}),
    "monologg/koelectra-base-v3-generator": ("ElectraForMaskedLM", _WIDE),
    "monologg/koelectra-small-finetuned-nsmc":
        ("ElectraForSequenceClassification", {**_NARROW, **labels("negative", "positive")}),
    "beomi/KcELECTRA-base": ("ElectraForPreTraining", {}),
    "dbmdz/electra-large-discriminator-finetuned-conll03-english":
        ("ElectraForTokenClassification", _ENTITIES),
    "deepset/electra-base-squad2": ("ElectraForQuestionAnswering", {}),
    "cross-encoder/ms-marco-electra-base": ("ElectraForSequenceClassification", _RERANKER),
    "klue/roberta-small": ("RobertaForMaskedLM", {}),
    "klue/roberta-base": ("RobertaForMaskedLM", {}),
    "klue/roberta-large": ("RobertaForMaskedLM", {}),
    "jhgan/ko-sroberta-multitask": ("RobertaModel", {}),
    "BM-K/KoSimCSE-roberta": ("RobertaModel", {}),
    "sentence-transformers/all-MiniLM-L6-v2": ("BertModel", {"gradient_checkpointing": False}),
    "cross-encoder/ms-marco-MiniLM-L6-v2": ("BertForSequenceClassification", _RERANKER),
    "prajjwal1/bert-tiny": ("BertForPreTraining", {}),
    # Other classes of transformers.
    "choices, DistilBERT": ("DistilBertForMultipleChoice", {}),
    "choices, ELECTRA": ("ElectraForMultipleChoice", _NARROW),
    "choices, RoBERTa": ("RobertaForMultipleChoice", {}),
    "classes, RoBERTa": ("RobertaForSequenceClassification", labels("0", "1", "2")),
    "tags, RoBERTa": ("RobertaForTokenClassification", _ENTITIES),
    "answers, RoBERTa": ("RobertaForQuestionAnswering", {}),
}  # fmt: skip


def make_peer(class_name, config, path):
    """Save a model of transformers with random weights and its vocabulary; return the model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    family = re.match("DistilBert|Electra|Roberta|Bert", class_name)[0]
    special = tiny.PIECES[:5]
    if family == "Roberta":  # KLUE's order
        special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    vocabulary = [*special, *tiny.PIECES[5:]]
    sizes = {"vocab_size": len(vocabulary), "max_position_embeddings": 34}
    if family == "DistilBert":
        sizes |= {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16}
    else:
        sizes |= {
            "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 16,
        }  # fmt: skip
    published = {**_KEYS[family], **sizes, **config, "architectures": [class_name]}
    peer_config = getattr(transformers, f"{family}Config").from_dict(published)
    peer = getattr(transformers, class_name)(peer_config).eval()
    torch.manual_seed(0)
    for name, parameter in peer.named_parameters():
        # "vocab_transform" is no LayerNorm.
        mean = 1.0 if name.lower().endswith("norm.weight") else 0.0
        torch.nn.init.normal_(parameter, mean, 0.3)
    peer.save_pretrained(path)
    write_json(path / "config.json", published)
    (path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    return peer


def check_head(model, inputs, outputs, is_token):
    """Compare the head of a model with the outputs of the same head of transformers."""
    task = heads.find_task(model)
    if task in ("masked_tokens", "pretraining"):
        positions = np.tile(np.arange(is_token.shape[1]), (len(is_token), 1))
        inputs = inputs | {"masked_lm_positions": positions}
    results = keras.tree.map_structure(keras.ops.convert_to_numpy, model(inputs))
    if task == "question_answering":
        pairs = [(results[key], outputs[key]) for key in ("start_logits", "end_logits")]
    elif task == "pretraining":
        is_next = outputs.seq_relationship_logits.numpy()
        np.testing.assert_allclose(results["next_sentence"], is_next, atol=1e-4)
        pairs = [(results["masked_lm"], outputs.prediction_logits)]
    else:
        pairs = [(results, outputs.logits)]
    for result, logits in pairs:
        expected = logits.numpy()
        if expected.shape[:2] == is_token.shape:  # one for each token
            result, expected = result[is_token], expected[is_token]
        np.testing.assert_allclose(result, expected, atol=1e-4)


@pytest.mark.peers
@pytest.mark.parametrize("name", LAYOUTS)
def test_numbers_are_those_of_transformers(tmp_path, name):
    torch = pytest.importorskip("torch")
    class_name, config = LAYOUTS[name]
    peer = make_peer(class_name, config, tmp_path)
    padding = 1 if class_name.startswith("Roberta") else 0
    ids = np.array([[2, 5, 6, 7, 3], [2, 9, 3, padding, padding]])
    is_token = ids != padding
    if "MultipleChoice" in class_name:
        ids = ids[None]
    tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(ids != padding)}
    with torch.no_grad():
        outputs = peer(**tensors)
        rows = {key: tensor.reshape(-1, 5) for key, tensor in tensors.items()}
        sequence = peer.base_model(**rows).last_hidden_state.numpy()
    inputs = {
        "input_word_ids": ids,
        "input_mask": np.array(ids != padding, "int32"),
        "input_type_ids": np.zeros_like(ids),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bert = keras_bert.load(tmp_path)
    assert len(tiny.user_warnings(caught)) == (class_name == "ElectraForPreTraining")
    result = bert({key: array.reshape(-1, 5) for key, array in inputs.items()})["sequence_output"]
    result = keras.ops.convert_to_numpy(result)
    np.testing.assert_allclose(result[is_token], sequence[is_token], atol=2e-5)
    if class_name.endswith("Model") or class_name == "ElectraForPreTraining":
        return
    check_head(keras_bert.load(tmp_path, task="auto"), inputs, outputs, is_token)


@pytest.mark.peers
@pytest.mark.parametrize(
    "name",
    [
        "sentence-transformers/msmarco-distilbert-base-v4", "jhgan/ko-sroberta-multitask",
        "monologg/koelectra-base-v3-discriminator",
    ],
)  # fmt: skip
def test_vectors_are_those_of_sentence_transformers(tmp_path, name):
    """Also with KLUE's order of the special tokens, where the id of [PAD] is 1."""
    transformers = pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    class_name, config = LAYOUTS[name]
    class_name = class_name.replace("ForPreTraining", "Model")
    make_peer(class_name, config, tmp_path / "transformer")
    tokenizer = transformers.BertTokenizer(str(tmp_path / "transformer" / "vocab.txt"))
    tokenizer.model_max_length = 32
    tokenizer.save_pretrained(tmp_path / "transformer")
    from sentence_transformers.sentence_transformer import modules

    transformer = modules.Transformer(str(tmp_path / "transformer"), max_seq_length=32)
    pooling = modules.Pooling(8, pooling_mode="mean")
    theirs = sentence_transformers.SentenceTransformer(modules=[transformer, pooling])
    theirs.save(str(tmp_path / "theirs"))
    texts = ["so good", "", "this film is so bad, and good", "good " * 20]
    embed = keras_bert.pipeline(tmp_path / "theirs")
    vectors = embed.encode(texts)
    np.testing.assert_allclose(vectors, theirs.encode(texts), atol=1e-5)
    embed.save(tmp_path / "ours", format="sentence_transformers")
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"))
    np.testing.assert_allclose(again.encode(texts), vectors, atol=1e-5)
