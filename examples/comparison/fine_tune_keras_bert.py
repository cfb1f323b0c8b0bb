import keras_bert

train_set, dev_set = keras_bert.read("train.tsv"), keras_bert.read("dev.tsv")
model, metrics = keras_bert.finetune(keras_bert.load("model"), train_set, dev_set)
print("accuracy", metrics["accuracy"])
