import keras
import keras_hub

model = keras_hub.models.BertTextClassifier.from_preset("classifier_preset", activation="softmax")
text = keras.Input(shape=(), dtype="string", name="text")
keras.Model(text, model(model.preprocessor(text))).export("served")
