from transformers import AutoModel

print(AutoModel.from_pretrained("extra").num_parameters())
