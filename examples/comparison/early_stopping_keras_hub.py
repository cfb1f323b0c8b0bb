import keras
import keras_hub
import pandas as pd

train, dev = pd.read_csv("train.tsv", sep="\t"), pd.read_csv("dev.tsv", sep="\t")
dev_set = (dev["text"], dev["label"] == "good")
model = keras_hub.models.BertTextClassifier.from_preset("preset", num_classes=2)
stop = keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)
model.fit(
    train["text"], train["label"] == "good", epochs=20, validation_data=dev_set, callbacks=[stop]
)
print("best epoch", stop.best_epoch + 1)
