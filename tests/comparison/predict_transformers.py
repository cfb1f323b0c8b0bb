from transformers import pipeline

print(pipeline("text-classification", "classifier")(["so good", "bad film"]))
