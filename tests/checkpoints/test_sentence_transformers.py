"""Folders of sentence-transformers, read and written."""

import json
from contextlib import nullcontext as nothing

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import checkpoints, heads
from keras_bert.checkpoints import tensor_files
from tests import tiny
from tests.checkpoints.huggingface_files import edit_json

TEXTS = ["so good", "bad", "", "a good film so bad", "한국 good"]
STACKS = {
    "cls": {"pooling": "cls"},
    "several modes": {"pooling": ["cls", "mean"], "layers": [(4, "tanh")]},
    "dense": {
        "pooling": "mean_sqrt_len_tokens",
        "layers": [(8, "relu"), (3, "linear")],
        "normalize": False,
        "similarity": "dot",
    },
    "prompts": {
        "pooling": "weightedmean",
        "prompts": {"query": "so ", "document": ""},
        "default_prompt": "query",
    },
    "no order": {"pooling": ["lasttoken", "max"], "normalize": False, "similarity": "euclidean"},
    "normalized before": {"pooling": "max", "layers": [None, (4, "gelu")], "normalize": False},
}


@pytest.mark.parametrize("name", STACKS)
def test_round_trip(name, tmp_path):
    model = tiny.embedder(**STACKS[name])
    expected = keras_bert.pipeline(model).encode(TEXTS)
    keras_bert.save(model, tmp_path / "st", format="sentence_transformers")
    keras_bert.save(model, tmp_path / "model.keras")
    assert checkpoints.detect(tmp_path / "st") == "sentence_transformers"
    for path in ("st", "model.keras"):
        pipeline = keras_bert.pipeline(tmp_path / path)
        np.testing.assert_allclose(pipeline.encode(TEXTS), expected, atol=1e-6)
        output, again = heads.find_output(model), heads.find_output(pipeline.model)
        for option in ("prompts", "default_prompt", "similarity"):
            assert getattr(again, option) == getattr(output, option)
    match = "settings of embeddings, which an encoder does not"
    with nothing() if name == "cls" else pytest.warns(UserWarning, match=match):
        loaded = keras_bert.load(tmp_path / "st")
    pooling = STACKS[name]["pooling"]
    assert loaded.pooling == (pooling if isinstance(pooling, str) else None)


@pytest.mark.peers
@pytest.mark.parametrize("name", STACKS)
def test_vectors_are_those_of_sentence_transformers(name, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    pipeline = keras_bert.pipeline(tiny.embedder(**STACKS[name]))
    keras_bert.save(pipeline.model, tmp_path / "ours", format="sentence_transformers")
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"))
    expected = peer.encode(TEXTS)
    np.testing.assert_allclose(pipeline.encode(TEXTS), expected, atol=1e-5)
    options = {"prompt": "bad ", "truncate_dim": 2}
    np.testing.assert_allclose(
        pipeline.encode(TEXTS, normalize=True, **options),
        peer.encode(TEXTS, normalize_embeddings=True, **options),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        pipeline.similarity(expected, expected), peer.similarity(expected, expected), atol=1e-5
    )
    peer.save(str(tmp_path / "theirs"))  # in their newest layout
    back = keras_bert.pipeline(tmp_path / "theirs")
    np.testing.assert_allclose(back.encode(TEXTS), expected, atol=1e-5)


def test_an_encoder_is_saved_as_the_pipeline_embeds_it(tmp_path):
    encoder = tiny.encoder(pooling="cls")
    keras_bert.save(encoder, tmp_path / "a", format="sentence_transformers")
    expected = keras_bert.pipeline(encoder).encode(TEXTS)
    np.testing.assert_allclose(
        keras_bert.pipeline(tmp_path / "a").encode(TEXTS), expected, atol=1e-6
    )


def folder_of(tmp_path, **options):
    path = tmp_path / "folder"
    keras_bert.save(tiny.embedder(**options), path, format="sentence_transformers")
    return path


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("1_Pooling/config.json", {"include_prompt": False}, "include_prompt must be true"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "must choose poolings of cls"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual must be false"),
        ("2_Dense/config.json", {"out_features": 5}, "must hold linear.weight"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "x"}, "must be one of cosine"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "x"},
            "must be one of the",
        ),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}, "must choose poolings"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": "no"}, "must be true or false"),
        ("config_sentence_transformers.json", {"prompts": {"a": 1}}, "prompts must be a dict"),
        ("config_sentence_transformers.json", {"truncate_dim": 2}, "truncate_dim must be null"),
        ("config_sentence_transformers.json", {"max_active_dims": 2}, "pass .*max_terms to encode"),
        ("2_Dense/config.json", {"activation_function": "my.GELU"}, "of torch.nn, received 'my.G"),
        ("3_Normalize/config.json", {"module_input_name": "x"}, "must be 'sentence_embedding'"),
    ],
)
def test_what_is_unknown_is_named(tmp_path, file, values, message):
    path = folder_of(tmp_path, pooling="mean", layers=[(4, "tanh"), None])
    (path / "3_Normalize/config.json").write_text("{}")
    edit_json(path / file, **values)
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(path)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (["Transformer", "Pooling", "LSTM"], "unknown module.* 'LSTM'"),
        (["Transformer", "Normalize"], "after Transformer must be Pooling"),
        (["BoW", "Pooling"], "the first module must be Transformer"),
        ([], "the first module must be Transformer"),
        (["Transformer", "Pooling", "other.Dense"], "unknown module.* 'other.Dense'"),
        (["Transformer", "Pooling", "Dense", "Dense"], "a folder of its own"),
    ],
)
def test_unknown_modules(tmp_path, modules, message):
    path = folder_of(tmp_path, pooling="mean")
    listed = [
        {
            "idx": n,
            "path": f"{modules.index(name)}_{name}" if n else "",
            "type": name if "." in name else f"sentence_transformers.models.{name}",
        }
        for n, name in enumerate(modules)
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match=message):
        keras_bert.load(path, task="auto")


def test_a_dense_layer_with_nan_is_refused(tmp_path):
    path = folder_of(tmp_path, pooling="mean", layers=[(4, "tanh")])
    file = path / "2_Dense/model.safetensors"
    tensors = {name: tensor.load() for name, tensor in tensor_files.read(file).items()}
    tensor_files.write(file, {name: array * np.nan for name, array in tensors.items()})
    with pytest.raises(ValueError, match="2_Dense.model.safetensors: .* must hold finite numbers"):
        keras_bert.pipeline(path)


def test_the_default_activation_is_tanh(tmp_path):
    path = folder_of(tmp_path, pooling="mean", layers=[(4, "tanh")])
    expected = keras_bert.pipeline(path).encode(TEXTS)
    config = json.loads((path / "2_Dense/config.json").read_text())
    del config["activation_function"]
    (path / "2_Dense/config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(keras_bert.pipeline(path).encode(TEXTS), expected)


def test_the_first_module_had_another_name_in_2019(tmp_path):
    path = folder_of(tmp_path, pooling="mean")
    expected = keras_bert.pipeline(path).encode(TEXTS)
    modules = json.loads((path / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.BERT"
    (path / "modules.json").write_text(json.dumps(modules))
    np.testing.assert_array_equal(keras_bert.pipeline(path).encode(TEXTS), expected)


@pytest.mark.parametrize("place", ["../other", "/etc", "a/../../b", "C:/b", "..\\b", "a\nb", 5])
def test_modules_stay_in_the_folder(tmp_path, place):
    path = folder_of(tmp_path, pooling="mean")
    modules = json.loads((path / "modules.json").read_text())
    modules[1]["path"] = place
    (path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="must be below the folder"):
        keras_bert.load(path)


def test_lowercasing_of_the_folder(tmp_path):
    path = folder_of(tmp_path, pooling="mean")
    edit_json(path / "tokenizer_config.json", do_lower_case=False, strip_accents=False)
    assert not keras_bert.load(path).preprocessor.lowercase
    edit_json(path / "sentence_bert_config.json", do_lower_case=True, max_seq_length=7)
    preprocessor = keras_bert.load(path).preprocessor
    assert (preprocessor.lowercase, preprocessor.max_sequence_length) == (True, 7)


def test_models_that_the_format_cannot_hold(tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1)
    with pytest.raises(ValueError, match="has no pooling. Save a model of heads.embedder"):
        keras_bert.save(encoder, tmp_path / "a", format="sentence_transformers")
    model = heads.embedder(encoder, layers=[keras.layers.LayerNormalization()])
    with pytest.raises(ValueError, match="only UnitLength, "):
        keras_bert.save(model, tmp_path / "b", format="sentence_transformers")
    lora = keras.layers.Dense(3)
    model = heads.embedder(encoder, layers=[lora])
    lora.enable_lora(2)
    for layer in (lora, keras.layers.UnitNormalization(axis=0)):
        model = heads.embedder(encoder, layers=[layer])
        with pytest.raises(ValueError, match="Dense without LoRA"):
            keras_bert.save(model, tmp_path / "c", format="sentence_transformers")
    model = heads.embedder(encoder, layers=[keras.layers.Dense(3, activation="leaky_relu")])
    with pytest.raises(ValueError, match="activation of a head must be one of"):
        keras_bert.save(model, tmp_path / "d", format="sentence_transformers")
    assert list(tmp_path.iterdir()) == []


def test_options_of_encode():
    encode = keras_bert.pipeline(tiny.embedder(**STACKS["prompts"])).encode
    np.testing.assert_allclose(encode("good"), encode("so good", prompt=""), atol=1e-6)
    assert encode(TEXTS, truncate_dim=3, normalize=True).shape == (5, 3)
    assert encode([], truncate_dim=3).shape == (0, 3)
    for options, message in (
        ({"truncate_dim": 9}, "at most 8"),
        ({"truncate_dim": 0}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            encode("good", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modality_config": {"text": {"method_output_name": "pooler_output"}}},
         "method_output_name must be one of last_hidden_state"),
        ({"modality_config": {"image": {}}}, "modality_config must have the options of text"),
        ({"module_output_name": "sentence_embedding"}, "module_output_name must be one of"),
    ],
)  # fmt: skip
def test_other_outputs_of_the_encoder_are_refused(tmp_path, options, message):
    path = folder_of(tmp_path, pooling="mean")
    edit_json(path / "sentence_bert_config.json", **options)
    with pytest.raises(ValueError, match=message):
        keras_bert.load(path, task="embedding")
    with pytest.warns(UserWarning, match="sentence_bert_config.json"):
        keras_bert.load(path)
