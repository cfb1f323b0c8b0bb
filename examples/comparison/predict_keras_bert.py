import keras_bert

print(keras_bert.predict("classification", ["so good", "bad film"]))
