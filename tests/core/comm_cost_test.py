import math

import jax
import pytest

import saddle_jax as sj
from saddle_jax import models
from saddle_jax.core.comm_cost import comm_cost, readable


def cost_of(method, model="resnet20", classes=10):
    module = models.build(model, classes)
    shapes = jax.eval_shape(
        lambda: sj.replicate(models.init(module, (32, 32, 3), jax.random.key(0)), method.topology.size)
    )
    return comm_cost(method, shapes)


def gigabytes(count):
    """Truncated to two decimals, as the paper prints."""
    return math.floor(count / 1e7) / 100


@pytest.mark.parametrize(
    ("agents", "steps", "printed"), [(5, 62_600, 136.45), (10, 31_400, 68.44), (20, 15_800, 34.43)]
)
def test_the_papers_figures_for_qgm_on_cifar10(agents, steps, printed):
    cost = cost_of(sj.qgm(sj.ring(agents), 0.1))
    assert gigabytes(cost.paper_bytes_per_agent(steps - 1)) == printed  # its counter lags one step


def test_the_papers_figure_for_top_30_percent():
    cost = cost_of(sj.qgm(sj.ring(5), 0.1, compressor=sj.top_k(0.3)))
    assert gigabytes(cost.paper_bytes_per_agent(62_599)) == 61.38


def test_ngm_sends_models_out_and_gradients_back():
    plain = cost_of(sj.ngm(sj.ring(5), 0.1))
    assert plain.paper_bytes_per_agent(1) == 2 * 2 * 4 * 272_474
    signs = cost_of(sj.ngm(sj.ring(5), 0.1, compressor=sj.sign()))
    assert signs.paper_bits[0] == 2 * (32 + 1) * 272_474
    # one scale per tensor, and bytes filled up
    assert 0 < signs.wire_bytes[0] - signs.paper_bits[0] / 8 <= 2 * 65 * (4 + 1)


def test_counted_bytes_are_the_bytes_of_real_payloads():
    method = sj.dpsgd(sj.star(4), 0.1, compressor=sj.quantize(8))
    params = models.init(models.build("cnn", 10), (8, 8, 1), jax.random.key(0))
    cost = comm_cost(method, sj.replicate(params, 4))
    sent = sum(sj.quantize(8).encode(leaf, jax.random.key(1)).data.size for leaf in jax.tree.leaves(params))
    assert cost.wire_bytes == (3 * sent, sent, sent, sent)  # the hub has three out_degrees
    assert cost.wire_bytes_per_agent(10) == 10 * 6 * sent // 4


def test_bytes_for_people():
    assert [readable(n) for n in (0, 999, 1234, 24_060_000, 1.5e12)] == [
        "0 B",
        "999 B",
        "1.23 kB",
        "24.06 MB",
        "1.50 TB",
    ]
