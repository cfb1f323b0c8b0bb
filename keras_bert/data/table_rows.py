"""Rows of CSV and TSV files as text."""

import csv
import io
import re

# The line ends of `str.splitlines`.
_TABS_AND_LINE_ENDS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


def csv_row(fields) -> str:
    """Return a row of a CSV file, without its line end."""
    row = io.StringIO()
    # csv quotes fields that hold a character of the line terminator, so use "\r\n".
    csv.writer(row, lineterminator="\r\n").writerow(list(fields))
    return row.getvalue().removesuffix("\r\n")


def tsv_row(fields) -> str:
    """Return a row of a TSV file; tabs and line ends in fields become spaces."""
    return "\t".join(_TABS_AND_LINE_ENDS.sub(" ", str(field)) for field in fields)
