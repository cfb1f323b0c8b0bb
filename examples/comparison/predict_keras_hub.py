import keras_hub

model = keras_hub.models.BertTextClassifier.from_preset("classifier_preset", activation="softmax")
for scores in model.predict(["so good", "bad film"]):
    print({"label": ["bad", "good"][scores.argmax()], "score": scores.max()})
