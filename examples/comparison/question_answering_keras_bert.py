import keras_bert

train_set = keras_bert.read("train.json", task="question_answering")
model, _ = keras_bert.finetune(keras_bert.load("model"), train_set)
print(keras_bert.predict(model, ("is this so", "a film is bad!")))
