"""Answer millions of texts with an exported model on Apache Beam.

    keras-bert export MODEL exported
    python examples/bulk/predict.py exported --trusted --input 'reviews/*.jsonl' --output out

writes out/predicted-*.jsonl and, for rows that cannot be read or answered, out/rejected-*.jsonl.
Options of Beam, such as --runner, follow after these; see README.md.
"""

import argparse

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from keras_bert import bulk


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a SavedModel, or of an ONNX or OpenVINO export")
    parser.add_argument("--input", required=True, help="text, JSON Lines or Parquet files")
    parser.add_argument("--output", required=True, help="folder")
    parser.add_argument("--format", choices=bulk.FORMATS.values(), help="default: by extension")
    parser.add_argument("--text", help="column of the texts, if it is not 'text'")
    parser.add_argument("--keep", nargs="*", help="columns to keep (default: all)")
    parser.add_argument("--parquet", action="store_true", help="write Parquet, not JSON Lines")
    trusted = "run a SavedModel, which is a program; for models you trust"
    parser.add_argument("--trusted", action="store_true", help=trusted)
    args, beam_options = parser.parse_known_args(arguments)
    options = PipelineOptions(beam_options)
    FileSystems.set_options(options)
    # Without this check, a wrong pattern ends in a long traceback of Beam.
    if not FileSystems.match([args.input])[0].metadata_list:
        parser.error(f"argument --input: no file matches {args.input}")

    columns = {"text": args.text} if args.text else None
    predict = bulk.Predict(args.model, columns=columns, keep=args.keep, trusted=args.trusted)
    schema = bulk.parquet_schema(predict, args.input, args.format) if args.parquet else None
    pipeline = beam.Pipeline(options=options)
    rows = pipeline | bulk.ReadRows(args.input, args.format)
    predicted, rejected = rows | predict
    predicted | "WritePredicted" >> bulk.WriteRows(f"{args.output}/predicted", schema)
    rejected | "WriteRejected" >> bulk.WriteRows(f"{args.output}/rejected")
    result = pipeline.run()
    result.wait_until_finish()
    for counter in result.metrics().query()["counters"]:
        if counter.key.metric.name in ("predicted", "rejected"):
            print(f"{counter.key.metric.name}: {counter.result}")


if __name__ == "__main__":
    main()
