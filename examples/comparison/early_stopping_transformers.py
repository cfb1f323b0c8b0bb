from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
)

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=2)
data = load_dataset("csv", data_files={"train": "train.tsv", "dev": "dev.tsv"}, delimiter="\t")
data = data.class_encode_column("label").map(lambda row: tokenizer(row["text"], truncation=True))
train_set, dev_set = data["train"], data["dev"]
args = TrainingArguments(
    num_train_epochs=20, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True
)
trainer = Trainer(
    model, args, train_dataset=train_set, eval_dataset=dev_set, processing_class=tokenizer
)
trainer.add_callback(EarlyStoppingCallback(early_stopping_patience=2))
trainer.train()
print("best checkpoint", trainer.state.best_model_checkpoint)
