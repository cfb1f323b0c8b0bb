import keras_bert

print(keras_bert.predict("classifier", ["so good", "bad film"]))
