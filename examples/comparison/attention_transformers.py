import matplotlib.pyplot as plt
from transformers import AutoModel, AutoTokenizer

inputs = AutoTokenizer.from_pretrained("model")("this film is so good", return_tensors="pt")
model = AutoModel.from_pretrained("model", attn_implementation="eager")
attentions = model(**inputs, output_attentions=True).attentions
figure, axes = plt.subplots(len(attentions), attentions[0].shape[1], squeeze=False)
for row, layer in zip(axes, attentions, strict=True):
    for axis, weights in zip(row, layer[0].detach(), strict=True):
        axis.imshow(weights)
figure.savefig("attention.png")
