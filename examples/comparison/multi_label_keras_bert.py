import keras_bert

train_set = keras_bert.read("topics.tsv", task="multi_label")
model, _ = keras_bert.finetune(keras_bert.load("model"), train_set)
print(keras_bert.predict(model, "this film is good"))
