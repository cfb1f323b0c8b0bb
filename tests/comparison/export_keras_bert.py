import keras_bert

keras_bert.export(keras_bert.load("classifier", task="classifier"), "served")
