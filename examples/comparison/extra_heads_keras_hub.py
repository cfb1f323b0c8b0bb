import keras_hub

print(keras_hub.models.BertBackbone.from_preset("extra").count_params())
