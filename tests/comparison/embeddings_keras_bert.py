import keras_bert

print(keras_bert.predict("model", ["so good", "bad film"]).shape)
