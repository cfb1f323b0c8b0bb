from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=2)
data = load_dataset("csv", data_files={"train": "train.tsv", "dev": "dev.tsv"}, delimiter="\t")
data = data.class_encode_column("label").map(lambda row: tokenizer(row["text"], truncation=True))
trainer = Trainer(model, train_dataset=data["train"], processing_class=tokenizer)
trainer.train()
output = trainer.predict(data["dev"])
print("accuracy", (output.predictions.argmax(-1) == output.label_ids).mean())
