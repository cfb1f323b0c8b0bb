"""A small BERT of your own, from text files to a checkpoint: vocabulary, records, pretraining.

4 layers of width 256 and 16,000 pieces of its own. The same as three commands, `keras-bert vocab`,
`records` and `pretrain`, which have more options. Given again, it goes on where it was stopped.

Command:   python examples/pretrain.py TEXT ... --output my_bert
Time:      an hour and a half to two and a quarter on 2 CPU cores (at 10,700 and at 6,600 tokens a
           second); with --steps 8000 an hour to an hour and a half
Expected:  0.31 of the masked pieces and 0.91 of the next sentences right on held-out documents, at
           128 positions; at 64, before, 0.34 and 0.87, after 3,000 steps 0.23 and 0.80. With
           --steps 8000 0.25 and 0.88, and 0.30 and 0.84
           (170 MB of English Wikipedia and books, seed 0)
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

import keras_bert
from keras_bert.pretraining import corpus, records, train, vocabulary

PIECES = 16_000
LENGTHS = 64, 128  # of the two phases; the paper's are 128 and 512


def main():
    """Goes from text to a checkpoint, a step at a time; steps that are done are not done again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "text", nargs="+", help="a paragraph a line, a blank line between documents"
    )
    parser.add_argument("--output", required=True, type=pathlib.Path, help="folder for all of it")
    parser.add_argument("--pieces", type=int, default=PIECES, help="to learn (%(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="of the encoder (%(default)s)")
    parser.add_argument("--width", type=int, default=256, help="of its vectors (%(default)s)")
    parser.add_argument("--steps", type=int, default=12_000, help="of both phases (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="pairs a step (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and masks (%(default)s)")
    args = parser.parse_args()

    if not (args.output / "vocabulary" / "vocab.txt").exists():
        # A sample of the text, evenly spread, is as good as all of it.
        pieces = vocabulary.train(corpus.documents(args.text), args.pieces, max_bytes=50 * 10**6)
        vocabulary.write(args.output / "vocabulary", pieces)
    pieces, options = vocabulary.read(args.output / "vocabulary")
    preprocessor = keras_bert.Preprocessor(pieces, **options)
    made = records.build(args.text, args.output / "records", preprocessor, held_out=0.02)
    print(f"{made['counts']['documents']:,} documents, {made['counts']['pieces']:,} pieces")

    keras.utils.set_random_seed(args.seed)  # of the first weights
    bert = keras_bert.BertEncoder(
        vocab_size=len(pieces),
        num_hidden_layers=args.layers,
        hidden_size=args.width,
        num_attention_heads=max(1, args.width // 64),
        intermediate_size=4 * args.width,
        # No dropout: what is read once or twice is not learned by heart.
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
            learning_rate=5e-4,  # five times the paper's, as the model is small; 1e-3 learns less
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
        print("fewer than two documents are held out, so there is nothing to evaluate on")
    for record in evaluated:
        accuracy = [record[f"eval_{task}_accuracy"] for task in ("masked_lm", "next_sentence")]
        print(f"{record['step']:7}  {accuracy[0]:9.3f}  {accuracy[1]:13.3f}")
    print(f"keras_bert.load({str(args.output / 'model')!r}) is the model, for finetune and fill")


if __name__ == "__main__":
    main()
