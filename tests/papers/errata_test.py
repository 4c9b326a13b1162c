"""docs/errata.md, recomputed: every expression on it, every claim that the tables do not bear out."""

import ast
import operator
import pathlib
import re

import jax
import numpy as np
import pytest

from saddle_jax.compression.quantization import quantize
from saddle_jax.papers.saddle.claims import CLAIMS
from saddle_jax.papers.saddle.costs import ratios, shapes_of
from saddle_jax.papers.saddle.experiments import EXPERIMENTS

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "errata.md").read_text()
EXPRESSIONS = re.findall(r"`([-+*/()\d. ]+)`\s=\s(-?\d+(?:\.\d+)?)", PAGE)
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def computed(text):
    """The value of an expression of numbers."""

    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        return node.value

    return value(ast.parse(text, mode="eval").body)


def test_every_expression_gives_what_stands_behind_it():
    assert len(EXPRESSIONS) >= 20
    for expression, result in EXPRESSIONS:
        digits = len(result.partition(".")[2])
        assert abs(computed(expression) - float(result)) <= 0.5 * 10**-digits + 1e-9, expression


def rows():
    lines = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.count(" | ") == 5]
    return [[cell.strip() for cell in line] for line in lines if line[0].strip() != "place"]


def test_the_page_lists_what_the_tables_do_not_bear_out_and_nothing_else():
    expected = [
        [c.place, c.text, " to ".join(c.stated), c.written(c.printed()), c.verdict()]
        for c in CLAIMS
        if c.verdict() != "yes"
    ]
    assert [row[:5] for row in rows()] == expected
    counts = {verdict: sum(c.verdict() == verdict for c in CLAIMS) for verdict in ("yes", "nearly", "no")}
    told = re.search(
        r"all (\d+) numbers[\s\S]*Of the \1, (\d+) are what[\s\S]* (\d+) are within[\s\S]* (\d+) are not",
        PAGE,
    )
    assert tuple(map(int, told.groups())) == (len(CLAIMS), *counts.values())


def test_the_arithmetic_of_each_row_comes_to_what_the_command_computes():
    for row in rows():
        stated = [float(number) for number in row[3].split(" to ")]
        by_hand = [computed(text) for text in re.findall(r"`([^`]+)`", row[5])]
        np.testing.assert_allclose(by_hand, stated, atol=0.0051)


def test_the_drop_that_is_misprinted():
    (entry,) = (e for e in EXPERIMENTS["top-k"].entries if e.drop == 1.18)
    assert entry.name == "cifar10-ring5-alpha0.001-q_saddle-top_k0.3"
    assert entry.printed.mean == 89.49


def test_the_ratios_of_bytes():
    """Every tensor has a norm of 32 bits beside b bits and a sign per number; top-k has a mask of one bit."""
    told = re.findall(r"^\| .*? \| [\d.]+x \| ([\d.]+)x \|$", PAGE, re.M)
    n = np.array([leaf.size // 5 for leaf in jax.tree.leaves(shapes_of("cifar10"))])
    whole, signs = 32 * n.sum(), np.sum(n + 32)
    bits = [np.sum(9 * n + 32), np.sum(11 * n + 32), np.sum(32 * np.maximum(1, n * 3 // 10) + n)]
    exact = [*(whole / np.array(bits)), 2 * whole / (whole + signs), whole / signs]
    assert set(told) == {f"{ratio:.2f}" for ratio in exact} == {"3.55", "2.91", "3.02", "1.94", "31.76"}


@pytest.mark.usefixtures("of_one_tensor")
def test_the_captions_are_right_by_their_own_counting():
    for ratio in ratios():
        assert ratio.printed == pytest.approx(float(ratio.stated), rel=0.012)


def test_the_unbiased_quantizer_of_two_bits_enlarges_what_it_is_given():
    x = jax.random.normal(jax.random.key(0), (1000,))
    for biased, is_larger in ((False, True), (True, False)):
        q = quantize(2, biased=biased).compress(x, jax.random.key(1))
        assert bool(np.linalg.norm(q - x) > np.linalg.norm(x)) == is_larger


@pytest.mark.parametrize(("lambda_", "mu"), [(0.24, 0.0), (0.5, 0.9), (1.0, 0.3)])
def test_the_proof_of_the_fifth_lemma_gives_a_sixth_and_not_an_eighth(lambda_, mu):
    ratio = lambda_ / 21  # the largest beta / (1 - beta) that it allows
    beta = ratio / (1 + ratio)
    unit = lambda_ * (1 - beta) / (1 - mu)
    proved = 72 * beta**2 / (lambda_ * (1 - mu) * (1 - beta)) / unit
    assert proved == pytest.approx(72 / 441)
    assert 1 / 8 < proved <= 1 / 6
    # delta^2 and the agents' spread, with eta L = 1/7: stated larger than proved
    assert 24 * beta**2 / (lambda_ * (1 - beta) ** 2) / lambda_ <= 1 / 18 < 1 / 8
    assert 24 * beta**2 * (1 + 2 / 49) / (lambda_ * (1 - beta) ** 2) <= lambda_ / 8


def test_scaling_the_change_of_consensus_keeps_the_square_of_the_smoothness():
    smooth, eta, beta, mu, lambda_, n = 3.0, 0.01, 0.02, 0.5, 0.3, 7
    slow = eta / (1 - beta)
    before = 6 * eta**2 * beta**2 / (n * lambda_ * (1 - mu) * (1 - beta))
    printed = 96 * slow**3 * beta**2 * (1 - beta) / (n * lambda_**2 * (1 - mu))
    assert before * 16 * smooth**2 * slow / lambda_ == pytest.approx(smooth**2 * printed)


def test_a_seventh_is_too_large_where_a_tenth_is_needed():
    assert 24 / 10**2 <= 1 / 4 < 24 / 7**2
