"""Question: do the outputs equal those of google-research/bert, bert-for-tf2 and keras-bert?

MiniLM is saved in Google's format. Each library computes the vectors of the same texts from this
folder, in an environment with TensorFlow 2.15. The script prints the maximum difference at the
positions of the texts. The largest outputs are about 6.

    python3.11 -m venv old
    old/bin/pip install tensorflow-cpu==2.15.1 keras==2.15.0 'numpy<2' 'setuptools<80' wheel
    old/bin/pip install --no-build-isolation bert-for-tf2 keras-bert
    git clone https://github.com/google-research/bert google-bert
    python benchmarks/old_libraries.py old/bin/python google-bert

The files of google-research/bert are read with `tensorflow.compat.v1` in place of `tensorflow`, and
bert-for-tf2 with `tensorflow.keras` in place of `tensorflow.python.keras`, which TensorFlow 2.15
does not have.
"""

import argparse
import os
import pathlib
import subprocess
import tempfile

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

LENGTH = 32
TEXTS = [
    "I was charged twice this month",
    "the app crashes when I open it, please help",
    "Where is my parcel? It should be here.",
]
# Each program gets the checkpoint, the file for the outputs, and an argument of its own.
GOOGLE = """
import importlib.util, pathlib, sys, types
import numpy as np
import tensorflow.compat.v1 as tf
folder, output, source = sys.argv[1:]
tf.disable_v2_behavior()

def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):
    with tf.variable_scope(scope or "LayerNorm"):
        beta = tf.get_variable("beta", [inputs.shape[-1]])
        gamma = tf.get_variable("gamma", [inputs.shape[-1]])
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)

tf.contrib = types.SimpleNamespace(layers=types.SimpleNamespace(layer_norm=layer_norm))

def read(name):
    text = pathlib.Path(source, name + ".py").read_text()
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(text.replace("import tensorflow as tf", "import tensorflow.compat.v1 as tf"), vars(module))
    return module

modeling, tokenization = read("modeling"), read("tokenization")
tokenizer = tokenization.FullTokenizer(folder + "/vocab.txt", do_lower_case=True)
ids, mask = np.zeros((len(TEXTS), LENGTH), "int32"), np.zeros((len(TEXTS), LENGTH), "int32")
for row, text in enumerate(TEXTS):
    found = tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize(text), "[SEP]"])
    ids[row, : len(found)], mask[row, : len(found)] = found, 1
config = modeling.BertConfig.from_json_file(folder + "/bert_config.json")
model = modeling.BertModel(
    config, False, tf.constant(ids), tf.constant(mask), tf.zeros_like(tf.constant(ids))
)
checkpoint = folder + "/bert_model.ckpt"
names, _ = modeling.get_assignment_map_from_checkpoint(tf.trainable_variables(), checkpoint)
tf.train.init_from_checkpoint(checkpoint, names)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    np.savez(output, ids=ids, vectors=session.run(model.get_sequence_output()))
"""
BERT_FOR_TF2 = """
import sys, types
import numpy as np
import tensorflow as tf
sys.modules["tensorflow.python"].keras = tf.keras
import bert
folder, output, kind = sys.argv[1:]
params = bert.params_from_pretrained_ckpt(folder)
layer = bert.BertModelLayer.from_params(params, name="bert")
tokenizer = bert.bert_tokenization.FullTokenizer(folder + "/vocab.txt", do_lower_case=True)
ids = np.zeros((len(TEXTS), LENGTH), "int32")
for row, text in enumerate(TEXTS):
    found = tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize(text), "[SEP]"])
    ids[row, : len(found)] = found
inputs = [tf.keras.Input((LENGTH,), dtype="int32") for _ in range(2)]
arrays = [ids, np.zeros_like(ids)]
if kind == "one input":
    inputs, arrays = inputs[0], ids
model = tf.keras.Model(inputs, layer(inputs))
bert.load_stock_weights(layer, folder + "/bert_model.ckpt")
if kind == "mask":
    vectors = layer([tf.constant(each) for each in arrays], mask=tf.constant(ids != 0)).numpy()
else:
    vectors = model.predict(arrays, verbose=0)
np.savez(output, ids=ids, vectors=vectors)
"""
KERAS_BERT = """
import sys
import numpy as np
from keras_bert import Tokenizer, load_trained_model_from_checkpoint, load_vocabulary
folder, output, _ = sys.argv[1:]
model = load_trained_model_from_checkpoint(
    folder + "/bert_config.json", folder + "/bert_model.ckpt", seq_len=LENGTH
)
tokenizer = Tokenizer(load_vocabulary(folder + "/vocab.txt"))
inputs = [np.array(x) for x in zip(*(tokenizer.encode(text, max_len=LENGTH) for text in TEXTS))]
np.savez(output, ids=inputs[0], vectors=model.predict(inputs, verbose=0))
"""


def main():
    """Run the libraries and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="python of the environment with the old libraries")
    parser.add_argument("google", help="a clone of google-research/bert")
    args = parser.parse_args()
    import keras_bert

    head = f"TEXTS = {TEXTS!r}\nLENGTH = {LENGTH}\n"
    with tempfile.TemporaryDirectory() as work:
        folder, output = f"{work}/minilm", f"{work}/outputs.npz"
        keras_bert.save(keras_bert.load("minilm", hidden_act="gelu_new"), folder, format="google")
        pathlib.Path(folder, "tokenizer_config.json").unlink()  # bert-for-tf2 would read it
        for name, program, argument in (
            ("google-research/bert", GOOGLE, os.path.abspath(args.google)),
            ("bert-for-tf2, two inputs and a mask", BERT_FOR_TF2, "mask"),
            ("bert-for-tf2, two inputs", BERT_FOR_TF2, "two inputs"),
            ("bert-for-tf2, one input", BERT_FOR_TF2, "one input"),
            ("keras-bert", KERAS_BERT, ""),
        ):
            command = [os.path.abspath(args.python), "-c", head + program, folder, output, argument]
            # In this repository, `import keras_bert` would import this project.
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            subprocess.run(
                command, check=True, cwd=work, env=environment, stdout=subprocess.DEVNULL
            )
            found = np.load(output)
            for activation in ("gelu_new", "gelu"):
                bert = keras_bert.load(folder, sequence_length=LENGTH, hidden_act=activation)
                inputs = bert.preprocessor(TEXTS)
                if (np.array(inputs["input_word_ids"]) != found["ids"]).any():
                    raise RuntimeError(f"{name}: the ids differ from those of keras_bert")
                shown = np.array(inputs["input_mask"]).astype(bool)
                vectors = np.array(bert(inputs)["sequence_output"])
                difference = np.abs(vectors - found["vectors"])[shown].max()
                print(f"{name:38} {activation:9} {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
