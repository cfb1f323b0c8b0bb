"""DistilBERT, ELECTRA and RoBERTa with WordPiece load as the BERT that they are."""

import re

import keras
import numpy as np
import pytest

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
FAMILIES = list(_NAMES)


def write(path, family, head, class_name, prefix="", **config):
    """Write a model of a family; return the tensors of the BERT that gives the same outputs."""
    tensors = encoder_tensors(pooler="classifier.bias" in head) | head
    if family != "electra":
        tensors[SEGMENTS] = tensors[SEGMENTS][:1]
    theirs = dict(tensors)
    sizes = dict(SIZES, type_vocab_size=len(tensors[SEGMENTS]))
    if family == "distilbert":
        tensors[SEGMENTS] *= 0
        del theirs[SEGMENTS]
        keys = {
            "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
            "hidden_dim": "intermediate_size",
        }  # fmt: skip
        sizes |= {name: sizes.pop(key) for name, key in keys.items()}
        del sizes["type_vocab_size"]
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


@pytest.mark.parametrize("prefix", ["", "model.", "module."])
@pytest.mark.parametrize("family", FAMILIES)
def test_encoders(tmp_path, family, prefix):
    tensors = write(tmp_path, family, {}, "Model", prefix)
    bert = keras_bert.load(tmp_path)
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)
    keras_bert.save(bert, tmp_path / "again", format="huggingface")
    again = keras_bert.load(tmp_path / "again")
    np.testing.assert_allclose(again(INPUTS)["sequence_output"], expected, atol=2e-5)


def make_head(name):
    if name == "ForMaskedLM":
        tensors = pretraining_tensors()
        return {key: tensors[key] for key in tensors if "relation" not in key}
    if name == "ForQuestionAnswering":
        return fill({"qa_outputs.weight": (2, H), "qa_outputs.bias": (2,)})
    return fill(CLASSES)


TASKS = {"ForMaskedLM": "masked_tokens", "ForQuestionAnswering": "question_answering"}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_heads_on_tokens(tmp_path, family, name):
    tensors = write(tmp_path, family, make_head(name), name)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_classifiers_have_the_hidden_layer_of_their_family(tmp_path, family):
    """It takes the place of the pooler, in every export, too; other formats have tanh there."""
    activation = _ACTIVATIONS[family]
    tensors = write(tmp_path / "theirs", family, fill(CLASSES), "ForSequenceClassification")
    model = keras_bert.load(tmp_path / "theirs", task="auto")
    cls = numpy_bert.encode(tensors, SIZES, IDS)[:, 0]
    hidden = cls @ tensors["bert.pooler.dense.weight"].T + tensors["bert.pooler.dense.bias"]
    hidden = {**numpy_bert.ACTIVATIONS, "tanh": np.tanh}[activation](hidden)
    expected = hidden @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    np.testing.assert_allclose(model(INPUTS), expected, atol=1e-4)
    assert heads.find_encoder(model).bert_config["pooler_act"] == activation
    keras_bert.save(model, tmp_path / "mine.keras")
    again = keras_bert.load(tmp_path / "mine.keras")
    np.testing.assert_allclose(again(INPUTS), expected, atol=1e-4)
    if activation == "tanh":
        keras_bert.save(model, tmp_path / "bert", format="huggingface")
        again = keras_bert.load(tmp_path / "bert", task="auto")
        np.testing.assert_allclose(again(INPUTS), expected, atol=1e-4)
    else:
        for format in ("huggingface", "google", "keras_hub"):
            with pytest.raises(ValueError, match="pooler_act|hidden_act"):
                keras_bert.save(model, tmp_path / format, format=format)


@pytest.mark.parametrize("family", FAMILIES)
def test_exports_of_classifiers(tmp_path, family):
    write(tmp_path / "theirs", family, fill(CLASSES), "ForSequenceClassification")
    model = keras_bert.load(tmp_path / "theirs", task="auto")
    for format in ("saved_model", "onnx"):
        keras_bert.export(model, tmp_path / format, format=format)  # it compares the answers


def test_a_tagger_on_another_family_is_saved_as_bert(tmp_path):
    write(tmp_path / "theirs", "distilbert", fill(CLASSES), "ForSequenceClassification")
    encoder = keras_bert.load(tmp_path / "theirs")
    model = heads.tagger(encoder, labels=["O", "X"])
    keras_bert.save(model, tmp_path / "bert", format="huggingface")
    again = keras_bert.load(tmp_path / "bert", task="auto")
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-5)


def test_a_discriminator_gives_its_encoder(tmp_path):
    head = fill({"discriminator_predictions.dense.weight": (H, H)})
    tensors = write(tmp_path, "electra", head, "ForPreTraining")
    with pytest.warns(UserWarning, match="its head is left out: .*discriminator_predictions"):
        bert = keras_bert.load(tmp_path)
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)


def test_classes_without_a_type_and_keys_without_a_meaning(tmp_path):
    """Transformers has a constant epsilon in DistilBERT, and no key for the pooler."""
    tensors = write(tmp_path, "distilbert", {}, "Model", layer_norm_eps=0.1, pooler_act="relu")
    edit_json(tmp_path / "config.json", model_type=None, architectures=["TFDistilBertModel"])
    bert = keras_bert.load(tmp_path)
    assert bert.bert_config["pooler_act"] == "tanh"
    expected = numpy_bert.encode(tensors, SIZES, IDS)
    np.testing.assert_allclose(bert(INPUTS)["sequence_output"], expected, atol=2e-5)
    (tmp_path / "model.safetensors").rename(tmp_path / "tf_model.h5")
    with pytest.raises(ValueError, match="must be model.safetensors"):
        keras_bert.load(tmp_path)


def test_the_padding_of_a_roberta_is_that_of_its_tokenizer(tmp_path):
    write(tmp_path, "roberta", {}, "Model")
    edit_json(tmp_path / "config.json", pad_token_id=4)
    with pytest.raises(ValueError, match=r"pad_token_id must be the id of \[PAD\]"):
        keras_bert.load(tmp_path)


@pytest.mark.parametrize("family", ["electra", "roberta"])
def test_masked_lm_heads_have_gelu(tmp_path, family):
    write(tmp_path, family, make_head("ForMaskedLM"), "ForMaskedLM", hidden_act="relu")
    with pytest.warns(UserWarning, match="its head is left out: .*hidden_act must be gelu"):
        keras_bert.load(tmp_path)


def test_an_electra_with_narrow_embeddings_is_refused(tmp_path):
    write(tmp_path, "electra", {}, "Model", embedding_size=2)
    with pytest.raises(ValueError, match="embedding_size must be 4"):
        keras_bert.load(tmp_path)


def fill_peer(torch, peer):
    """Set random weights, those of LayerNorm around 1. "vocab_transform" is no LayerNorm."""
    torch.manual_seed(0)
    for name, parameter in peer.named_parameters():
        mean = 1.0 if name.lower().endswith("norm.weight") else 0.0
        torch.nn.init.normal_(parameter, mean, 0.3)


@pytest.mark.peers
@pytest.mark.parametrize(
    "name",
    ["Model", "ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering",
     "ForSequenceClassification", "ForMultipleChoice"],
)  # fmt: skip
@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_those_of_transformers(tmp_path, family, name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if (family, name) == ("electra", "ForMultipleChoice"):
        pytest.skip("its head has another hidden layer")
    sizes = {"vocab_size": len(tiny.PIECES), "max_position_embeddings": 32}
    if family == "distilbert":
        sizes |= {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16}
    else:
        sizes |= {
            "hidden_size": 8, "embedding_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 16,
        }  # fmt: skip
    if family == "roberta":
        sizes |= {"type_vocab_size": 1, "pad_token_id": 0}
        sizes.pop("embedding_size")
    class_name = f"{_CLASSES[family]}{name}"
    config = getattr(transformers, f"{_CLASSES[family]}Config")(**sizes)
    peer = getattr(transformers, class_name)(config).eval()
    fill_peer(torch, peer)
    peer.save_pretrained(tmp_path)
    rows = np.array([[2, 5, 6, 7, 3], [2, 9, 8, 3, 4]])
    shape = (1, 2, 5) if name == "ForMultipleChoice" else (2, 5)
    ids = rows.reshape(shape)
    with torch.no_grad():
        outputs = peer(input_ids=torch.tensor(ids), attention_mask=torch.ones(shape))
    inputs = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
    }
    if name == "ForMaskedLM":
        inputs["masked_lm_positions"] = np.tile(np.arange(5), (2, 1))
    model = keras_bert.load(tmp_path, task="auto")
    found = keras.tree.map_structure(keras.ops.convert_to_numpy, model(inputs))
    if name == "Model":
        expected = outputs.last_hidden_state.numpy()
        np.testing.assert_allclose(found["sequence_output"], expected, atol=2e-5)
    elif name == "ForQuestionAnswering":
        for key in ("start_logits", "end_logits"):
            np.testing.assert_allclose(found[key], outputs[key].numpy(), atol=1e-4)
    else:
        np.testing.assert_allclose(found, outputs.logits.numpy(), atol=1e-4)


@pytest.mark.peers
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_sentence_transformers(tmp_path, family):
    """Also with KLUE's order of the special tokens, where the id of [PAD] is 1."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    vocabulary = [*special, *(token for token in tiny.PIECES if token not in special)]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    sizes = {"vocab_size": len(vocabulary), "max_position_embeddings": 34, "pad_token_id": 1}
    if family == "distilbert":
        sizes |= {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
    else:
        sizes |= {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        sizes |= {"embedding_size": 8} if family == "electra" else {"type_vocab_size": 1}
    config = getattr(transformers, f"{_CLASSES[family]}Config")(**sizes)
    peer = getattr(transformers, f"{_CLASSES[family]}Model")(config)
    fill_peer(torch, peer)
    peer.save_pretrained(tmp_path / "transformer")
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
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
