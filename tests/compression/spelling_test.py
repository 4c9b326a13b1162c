"""How settings name compressors."""

import pytest

import saddle_jax as sj
from saddle_jax.compression import COMPRESSORS


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("identity", sj.identity()),
        ("quantize(8)", sj.quantize(8)),
        ("quantize(bits=8, biased=False)", sj.quantize(8)),
        ("quantize(2, biased=True)", sj.quantize(2, biased=True)),
        ("top_k(0.3)", sj.top_k(0.3)),
        ("top_k(.3)", sj.top_k(0.3)),
        ("random_k(1)", sj.random_k(1.0)),
        ("sign", sj.sign()),
        ("natural", sj.natural()),
        ("ternary", sj.ternary()),
        ("low_rank(2)", sj.low_rank(2)),
    ],
)
def test_a_call_makes_what_it_says(text, operator):
    assert COMPRESSORS.make(text) == operator
    assert COMPRESSORS.make(operator) is operator


WRONG = {
    "": "^compressor must be NAME",
    "Sign": "^did you mean 'sign'.*compressor must be one of identity, quantize, .*, got 'Sign'$",
    "sign(3)": r"^compressor sign takes no options, got 'sign\(3\)': too many positional arguments$",
    "quantize": "^compressor quantize must be given bits, got 'quantize'$",
    "quantize(2.5)": "^bits must be an integer >= 1 and <= 16, got 2.5$",
    "quantize(8, small=True)": "^compressor quantize takes bits, biased, got option 'small'$",
    "quantize8": "^did you mean 'quantize'.*compressor must be one of .*, got 'quantize8'$",
    "top_k": "^compressor top_k must be given fraction, got 'top_k'$",
    "top_k(99999)": "^fraction must be a number > 0 and <= 1, got 99999$",
    "low_rank(x)": "^rank must be an integer >= 1.*, got 'x'$",
    "quantize(\uff18)": "^compressor must be NAME",
    "mine": "^compressor must be one of identity, quantize, .*, got 'mine'$",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_made_is_told_in_one_line(text):
    with pytest.raises(sj.ArgumentError, match=WRONG[text]):
        COMPRESSORS.make(text)
