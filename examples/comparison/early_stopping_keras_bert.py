import keras_bert

train_set, dev_set = keras_bert.read("train.tsv"), keras_bert.read("dev.tsv")
bert = keras_bert.load("model")
model, metrics = keras_bert.finetune(bert, train_set, dev_set, epochs=20, patience=2)
print("best epoch", metrics["best_epoch"])
