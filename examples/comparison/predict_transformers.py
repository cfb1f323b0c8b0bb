from transformers import pipeline

print(pipeline("text-classification", "classification")(["so good", "bad film"]))
