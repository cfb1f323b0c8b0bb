import keras_bert

print(keras_bert.pipeline("model", pooling="mean")(["so good", "bad film"]).shape)
