from keras_hub.models import BertTextEmbedder

print(BertTextEmbedder.from_preset("preset").predict(["so good", "bad film"]).shape)
