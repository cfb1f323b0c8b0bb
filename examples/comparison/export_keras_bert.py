import keras_bert

keras_bert.export(keras_bert.load("classification", task="classification"), "served")
