"""The part of the peers in `accelerator.py`: transformers and sentence-transformers, on torch."""

import contextlib
import copy
import gc
import tempfile
import time

import made_up_data
import protocol
import torch
import transformers

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DECAY, CLIP = 0.01, 1.0


def new_config(config):
    """Return the `BertConfig` for a config of keras_bert, whose keys are Google's."""
    return transformers.BertConfig(**config, attn_implementation="sdpa")


def new_tokenizer(config):
    vocabulary = made_up_data.vocabulary(config["vocab_size"])
    return transformers.BertTokenizer({token: index for index, token in enumerate(vocabulary)})


def wait_for_device():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def start_device():
    """Start the device and its library for matmuls, which are no part of a measurement."""
    torch.ones((8, 8), device=DEVICE) @ torch.ones((8, 8), device=DEVICE)
    wait_for_device()


def free_memory():
    """Free the memory of earlier models, which then do not count in the peak."""
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory():
    return torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None


class Pretraining:
    """Steps of `BertForPreTraining`, compiled, with the recipe of `keras_bert.pretrain`.

    All rows are full, so there is no attention mask, and SDPA can choose its fastest kernel. With
    `weights="float32"`, autocast computes in bfloat16; with `"bfloat16"`, weights and the state of
    the optimizer are bfloat16 too.
    """

    def __init__(self, config, rows, length, steps):
        self.config = config
        self.steps = steps
        batch = made_up_data.pretraining_batch(rows, length, config["vocab_size"])
        self.batch = self._on_device(batch)
        self.weights = None
        self.facts = {}

    def run(self, weights):
        if weights != self.weights:
            self._compile(weights)
        start = time.perf_counter()
        loss = self._take(self.steps)
        return {"seconds": (time.perf_counter() - start) / self.steps, "loss": loss}

    def _compile(self, weights):
        """Make a new model in place of the one of other weights."""
        self.weights = weights
        self.model = self.optimizer = self.parameters = None
        torch.compiler.reset()
        free_memory()
        model = transformers.BertForPreTraining(new_config(self.config)).to(DEVICE)
        self.computing = torch.autocast(DEVICE, torch.bfloat16)
        if weights == "bfloat16":
            model.to(torch.bfloat16)
            self.computing = contextlib.nullcontext()
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(_groups(self.parameters), lr=1e-4, fused=True)
        # On a CPU, the compiler for C++ would take longer than everything else.
        self.model = torch.compile(model, backend="inductor" if DEVICE == "cuda" else "aot_eager")
        self._take(3)

    def _on_device(self, batch):
        ids = torch.from_numpy(batch["ids"]).long()
        positions = torch.from_numpy(batch["positions"]).long()
        labels = torch.full_like(ids, -100)
        labels.scatter_(1, positions, torch.from_numpy(batch["targets"]).long())
        inputs = {
            "input_ids": ids,
            "token_type_ids": torch.zeros_like(ids),
            "labels": labels,
            "next_sentence_label": torch.from_numpy(batch["next_sentence"]).long(),
        }
        return {name: value.to(DEVICE) for name, value in inputs.items()}

    def _take(self, steps):
        """Take some steps, and return the last loss."""
        for _ in range(steps):
            with self.computing:
                loss = self.model(**self.batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)
            self.optimizer.step()
            self.optimizer.zero_grad()
        wait_for_device()
        return loss.item()


def _groups(parameters):
    """Return groups of parameters for AdamW: only matrices decay."""
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    return [
        {"params": matrices, "weight_decay": DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]


class EpochEnds(transformers.TrainerCallback):
    """Records the time at the end of each epoch."""

    def __init__(self):
        self.times = []

    def on_epoch_end(self, args, state, control, **kwargs):
        wait_for_device()
        self.times.append(time.perf_counter())


def training_arguments(folder, epochs, batch_size, loader_processes):
    return {
        "output_dir": folder,
        "num_train_epochs": epochs,
        "per_device_train_batch_size": batch_size,
        "learning_rate": 5e-5,
        "warmup_steps": 0.1,  # a fraction of the steps
        "weight_decay": DECAY,
        "max_grad_norm": CLIP,
        "bf16": True,
        "use_cpu": DEVICE == "cpu",
        "dataloader_num_workers": loader_processes,
        "dataloader_persistent_workers": loader_processes > 0,
        "dataloader_pin_memory": DEVICE == "cuda",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


class Training:
    """Training of a classifier with `Trainer`, or of an embedder with sentence-transformers.

    `data` is `"sentences"` or `"pairs"`. Each run starts from the same weights.
    """

    def __init__(self, config, data, rows, epochs, batch_size, max_length, **unused):
        self.folder = tempfile.TemporaryDirectory()
        self.options = {"epochs": epochs, "batch_size": batch_size}
        self.max_length = max_length
        self.data = data
        if data == "pairs":
            save_encoder(config, self.folder.name)
            self.columns = made_up_data.pairs(rows, config["vocab_size"])
        else:
            self.sentences, self.labels = made_up_data.labeled_sentences(rows, config["vocab_size"])
            self.tokenizer = new_tokenizer(config)
            self.model = transformers.BertForSequenceClassification(new_config(config))
        self.facts = {}
        start_device()

    def run(self, loader_processes):
        free_memory()
        with tempfile.TemporaryDirectory() as folder:
            arguments = training_arguments(
                folder, **self.options, loader_processes=loader_processes
            )
            prepare = self._prepare_pairs if self.data == "pairs" else self._prepare_sentences
            new_trainer = prepare(arguments)
            ends = EpochEnds()
            start = time.perf_counter()
            trainer = new_trainer()
            trainer.add_callback(ends)
            result = trainer.train()
            wait_for_device()
            seconds = time.perf_counter() - start
        steady = (ends.times[-1] - ends.times[0]) / (len(ends.times) - 1)
        return {"seconds": seconds, "epoch_seconds": steady, "loss": result.training_loss}

    def _prepare_sentences(self, arguments):
        """Return a function from texts in memory to a `Trainer`."""
        model = copy.deepcopy(self.model).to(DEVICE)

        def new_trainer():
            encoded = self.tokenizer(self.sentences, truncation=True, max_length=self.max_length)
            rows = [
                {
                    "input_ids": encoded["input_ids"][index],
                    "token_type_ids": encoded["token_type_ids"][index],
                    "attention_mask": encoded["attention_mask"][index],
                    "labels": label,
                }
                for index, label in enumerate(self.labels)
            ]
            return transformers.Trainer(
                model,
                transformers.TrainingArguments(
                    **arguments, train_sampling_strategy="group_by_length"
                ),
                transformers.DataCollatorWithPadding(self.tokenizer),
                rows,
            )

        return new_trainer

    def _prepare_pairs(self, arguments):
        """Return a function from texts in memory to a `SentenceTransformerTrainer`."""
        import datasets
        import sentence_transformers
        from sentence_transformers.sentence_transformer import losses

        model = sentence_transformers.SentenceTransformer(self.folder.name, device=DEVICE)
        model.max_seq_length = self.max_length

        def new_trainer():
            questions, paragraphs = self.columns
            return sentence_transformers.SentenceTransformerTrainer(
                model,
                sentence_transformers.SentenceTransformerTrainingArguments(**arguments),
                datasets.Dataset.from_dict({"anchor": questions, "positive": paragraphs}),
                loss=losses.MultipleNegativesRankingLoss(model),
            )

        return new_trainer


def save_encoder(config, folder):
    """Write an encoder with random weights, from which sentence-transformers makes an embedder."""
    transformers.BertModel(new_config(config)).save_pretrained(folder)
    new_tokenizer(config).save_pretrained(folder)


class Encoding:
    """Embeddings of texts with sentence-transformers. `counts` has a number for each kind."""

    def __init__(self, config, counts):
        import sentence_transformers

        with tempfile.TemporaryDirectory() as folder:
            save_encoder(config, folder)
            model = sentence_transformers.SentenceTransformer(folder, device=DEVICE)
        model.max_seq_length = config["max_position_embeddings"]
        self.model = model.to(torch.bfloat16)
        free_memory()
        self.texts = {
            kind: made_up_data.texts(kind, count, config["vocab_size"])
            for kind, count in counts.items()
        }
        self.facts = {}
        start_device()

    def run(self, kind, count, batch_size):
        """Embed the first texts of a kind."""
        start = time.perf_counter()
        vectors = self.model.encode(
            self.texts[kind][:count],
            batch_size=batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "texts": len(vectors)}


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    jobs = {"pretraining": Pretraining, "training": Training, "encoding": Encoding}
    transformers.set_seed(0)
    protocol.serve(jobs, peak_memory)
