"""Pretrain a small BERT on your own text: vocabulary, records, pretraining.

The model has 4 layers, hidden size 256 and a vocabulary of 16,000 tokens. The commands `keras-bert
vocab`, `records` and `pretrain` do the same and have more options. Run the script again to resume
a run that was stopped.

Command:   python examples/pretrain.py TEXT ... --output my_bert
Time:      1.5 to 2.25 hours on 2 CPU cores (10,700 to 6,600 tokens per second); with --steps 8000
           1 to 1.5 hours
Expected:  accuracy on held-out documents: masked tokens 0.31 and next sentence prediction 0.91 at
           the end, 0.34 and 0.87 before the phase of 128 positions, 0.23 and 0.80 after 3,000
           steps. With --steps 8000: 0.25 and 0.88 at the end, 0.30 and 0.84 before the last phase
           (170 MB of English Wikipedia and books, seed 0)
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

import keras_bert
from keras_bert.pretraining import corpus, records, train, vocabulary

LENGTHS = 64, 128  # sequence lengths of the two phases; 128 and 512 in the paper


def main():
    """Make the vocabulary, the records and the model, and skip steps that are complete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "text", nargs="+", help="files: a paragraph per line, blank lines between documents"
    )
    parser.add_argument("--output", required=True, type=pathlib.Path, help="folder for all files")
    parser.add_argument("--vocabulary-size", type=int, default=16_000, help="default: %(default)s")
    parser.add_argument("--layers", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--hidden-size", type=int, default=256, help="default: %(default)s")
    parser.add_argument(
        "--steps", type=int, default=12_000, help="steps of both phases (%(default)s)"
    )
    parser.add_argument("--batch-size", type=int, default=64, help="pairs per step (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of weights and masks (%(default)s)"
    )
    args = parser.parse_args()

    if not (args.output / "vocabulary" / "vocab.txt").exists():
        # A sample that is spread evenly over the text is enough for a vocabulary.
        documents = corpus.documents(args.text)
        tokens = vocabulary.train(documents, args.vocabulary_size, max_bytes=50 * 10**6)
        vocabulary.write(args.output / "vocabulary", tokens)
    tokens, options = vocabulary.read(args.output / "vocabulary")
    preprocessor = keras_bert.Preprocessor(tokens, **options)
    made = records.build(args.text, args.output / "records", preprocessor, held_out=0.02)
    print(f"{made['counts']['documents']:,} documents, {made['counts']['pieces']:,} tokens")

    keras.utils.set_random_seed(args.seed)
    bert = keras_bert.BertEncoder(
        vocab_size=len(tokens),
        num_hidden_layers=args.layers,
        hidden_size=args.hidden_size,
        num_attention_heads=max(1, args.hidden_size // 64),
        intermediate_size=4 * args.hidden_size,
        # No dropout: text that the model sees once or twice does not overfit.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        preprocessor=preprocessor,
    )
    _, history = train.pretrain(
        bert,
        records.Records(args.output / "records"),
        args.output / "model",
        train.Recipe(
            train.two_phases(args.steps, args.batch_size, LENGTHS),
            learning_rate=5e-4,  # five times the paper's, because the model is small; 1e-3 is worse
            warmup_steps=args.steps // 20,
            seed=args.seed,
        ),
        log_every=max(1, args.steps // 100),
        save_every=max(1, args.steps // 20),
    )
    evaluated = [record for record in history if "eval_loss" in record]
    if evaluated:
        print("   step  masked LM  next sentence  (accuracy on held-out documents)")
    else:
        print("fewer than two documents are held out, so the model was not evaluated")
    for record in evaluated:
        accuracy = [record[f"eval_{task}_accuracy"] for task in ("masked_lm", "next_sentence")]
        print(f"{record['step']:7}  {accuracy[0]:9.3f}  {accuracy[1]:13.3f}")
    print(f"Load the model with keras_bert.load({str(args.output / 'model')!r})")


if __name__ == "__main__":
    main()
