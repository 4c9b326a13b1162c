"""How settings spell compressors."""

import pytest

import saddle_jax as sj
from saddle_jax.compression.spelling import parse_compressor, spellings


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("none", None),
        ("identity", sj.identity()),
        ("quantize8", sj.quantize(8)),
        ("quantize2_biased", sj.quantize(2, biased=True)),
        ("top_k0.3", sj.top_k(0.3)),
        ("top_k.3", sj.top_k(0.3)),
        ("random_k1", sj.random_k(1.0)),
        ("sign", sj.sign()),
        ("natural", sj.natural()),
        ("ternary", sj.ternary()),
        ("low_rank2", sj.low_rank(2)),
    ],
)
def test_a_name_a_number_and_a_switch(text, operator):
    assert parse_compressor(text) == operator


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sign",
        "sign3",
        "sign_biased",
        "quantize",
        "quantize2.5",
        "quantize8_small",
        "top_k",
        "top",
        "8",
        "low_rank",
        "low_rank1.5",
        "natural9",
        "quantize\uff18",
    ],
)
def test_what_cannot_be_read_is_told_with_all_that_can(text):
    with pytest.raises(sj.ArgumentError) as told:
        parse_compressor(text)
    assert str(told.value) == (
        "compressor must be one of none, identity, quantizeBITS, quantizeBITS_biased, top_kFRACTION, "
        f"random_kFRACTION, sign, natural, ternary, low_rankRANK, got {text!r}"
    )
    assert len(spellings()) == 10
