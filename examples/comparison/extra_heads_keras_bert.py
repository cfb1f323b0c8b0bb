import keras_bert

print(keras_bert.load("extra", ignore=["cls.chain.*"]).count_params())
