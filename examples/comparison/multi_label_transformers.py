from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, pipeline

data = load_dataset("csv", data_files="topics.tsv", delimiter="\t", split="train")
names = sorted({name for label in data["label"] for name in label.split(",")})
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForSequenceClassification.from_pretrained(
    "model", id2label=dict(enumerate(names)), problem_type="multi_label_classification"
)


def encode(row):
    labels = [float(name in row["label"].split(",")) for name in names]
    return {**tokenizer(row["text"], truncation=True), "labels": labels}


data = data.map(encode, remove_columns="label")
Trainer(model, train_dataset=data, processing_class=tokenizer).train()
classify = pipeline("text-classification", model, tokenizer=tokenizer, top_k=None)
print([found for found in classify(["this film is good"])[0] if found["score"] >= 0.5])
