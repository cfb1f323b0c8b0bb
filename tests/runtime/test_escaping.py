"""Text of untrusted models and files, as it is shown in terminals, HTML and Markdown."""

import pytest

from keras_bert.runtime import escaping

HARMLESS = [
    "B-PER", "긍정", "매우 좋음", "👩‍💻", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a b", "می‌خواهم",
    "שלום", "naïve", "$5|`x`", "　",
]  # fmt: skip
CONTROLS = [
    "\x1b[2J", "a\nb", "a\tb", "\0", "\x7f", "\x9b2J", "\u2028", "\u202egood", "\u2066", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_stays(text):
    escaping.check_name(text, "a label")
    assert escaping.printable(text) == text


@pytest.mark.parametrize("text", CONTROLS)
def test_control_characters_are_escaped_and_no_names(text):
    shown = escaping.printable(text)
    assert shown.isascii() and shown.isprintable()
    with pytest.raises(ValueError, match="a label must .* Rename it") as error:
        escaping.check_name(text, "a label")
    assert str(error.value).isprintable()


def test_html_keeps_line_breaks_and_tabs():
    hostile = "</script><img src=x onerror='alert(1)'>\n\t\x1b\u202e\ud800"
    shown = escaping.html(hostile)
    assert shown == (
        "&lt;/script&gt;&lt;img src=x onerror=&#x27;alert(1)&#x27;&gt;\n\t\\x1b\\u202e\\ud800"
    )
