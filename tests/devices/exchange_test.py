"""Agents on several devices: the same numbers as on one, and no more traffic than the graph needs."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import IRREGULAR, Problem, compiled
from suited import suited

import saddle_jax as sj
from saddle_jax.devices import exchange, lifting
from saddle_jax.devices.compilations import compilations
from saddle_jax.devices.placement import Placement
from saddle_jax.methods import METHODS
from saddle_jax.planning import compiled_text
from saddle_jax.training import evaluation

OPTIONS = {"learning_rate": 0.1, "beta": 0.9, "weight_decay": 0.03, "rho": 0.2}


def make(name, topology, **options):
    chosen = {**OPTIONS, **options}
    taken = {
        option: value
        for option, value in chosen.items()
        if option in {*METHODS.options(name), "learning_rate"}
    }
    return sj.METHODS[name](suited(name, topology), **taken)


def pad(tree, size):
    """Leaves [A, ...] with copies of the first agent behind them: what idle agents hold must not matter."""
    return jax.tree.map(lambda x: jnp.concatenate([x, *[x[:1]] * (size - len(x))]), tree)


def train(method, problem, devices, batch_devices=1, agents_per_call=0):
    """Models [A, ...], state and metrics after three steps."""
    mesh = sj.agent_mesh(devices, batch_devices)
    size = method.topology.size
    with jax.set_mesh(mesh):
        step = jax.jit(method.step, static_argnums=0, static_argnames=("diagnostics", "agents_per_call"))
        placed = lifting.stacked_sharding(mesh)
        params = jax.device_put(pad(problem.params, size), placed)
        state = method.init(params)
        with compilations() as programs:
            for t in range(3):
                batch = jax.device_put(pad(problem.batch(t), size), placed)
                params, state, metrics = step(
                    problem.loss_fn,
                    params,
                    state,
                    batch,
                    jax.random.key(t),
                    diagnostics=True,
                    agents_per_call=agents_per_call,
                )
        if devices > 1:
            for leaf in jax.tree.leaves((params, state)):
                if leaf.ndim:
                    assert leaf.sharding.is_equivalent_to(placed, leaf.ndim)
            assert programs.count("jit(step)") == 1  # the second step meets what the first one left
    return jax.device_get((params, state, metrics))


def test_devices_change_nothing_but_rounding_and_the_sharding_stays():
    """The invariants of methods say it of all on four devices; this is what they cannot, on two of them."""
    problem, method = Problem(8), make("q_saddle", sj.ring(8), compressor=sj.quantize(8))
    chex.assert_trees_all_close(train(method, problem, 2), train(method, problem, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "topology"), [("q_saddle", IRREGULAR), ("n_saddle", sj.complete(5))])
def test_idle_agents_take_no_part(name, topology):
    """5 agents on 4 devices: three idle ones, whose models are another's copies and would be noticed.

    The invariants of methods say it of all on a ring.
    """
    problem = Problem(5)
    alone, _, metrics = train(make(name, topology, compressor=sj.sign()), problem, 1)
    spread, _, spread_metrics = train(make(name, topology.padded(8), compressor=sj.sign()), problem, 4)
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[:5], spread), alone, rtol=1e-5, atol=1e-6)
    per_pair = {n: v for n, v in spread_metrics.items() if np.ndim(v) == 2}
    chex.assert_trees_all_close(spread_metrics, metrics, rtol=1e-4, atol=1e-6)
    assert all(len(v) == 5 for v in per_pair.values())
    assert topology.padded(8).spectral_gap == topology.spectral_gap
    assert str(topology.padded(8)) == str(topology)


def test_more_devices_than_agents_share_the_batches():
    problem = Problem(2, batch=4)
    method = make("n_saddle", sj.ring(2))
    chex.assert_trees_all_close(
        train(method, problem, 4, batch_devices=2), train(method, problem, 1), rtol=1e-5, atol=1e-6
    )


def test_gossip_is_the_product_with_w_on_any_graph():
    graphs = [
        sj.ring(8),
        sj.torus(4, 4),
        sj.circulant(12, [1, 5]),
        sj.star(8),
        sj.random_regular(16, 3, seed=1),
        sj.complete(8),
        sj.from_matrix(np.roll(np.eye(8), 1, axis=1) / 2 + np.eye(8) / 2, name="directed"),
    ]
    random = np.random.default_rng(0)
    trees = [
        {
            "a": jnp.asarray(random.normal(size=(graph.size, 3, 2)), jnp.float32),
            "b": jnp.asarray(random.normal(size=graph.size), jnp.bfloat16),
        }
        for graph in graphs
    ]
    with jax.set_mesh(sj.agent_mesh(4)):
        mixed = compiled(
            lambda trees: [
                [sj.mix(graph, tree, mixing) for mixing in ("table", "dense")]
                for graph, tree in zip(graphs, trees, strict=True)
            ]
        )(trees)
    for graph, tree, results in zip(graphs, trees, mixed, strict=True):
        exact = [np.einsum("ij,j...->i...", graph.mixing, np.asarray(tree[leaf], float)) for leaf in "ab"]
        for result in results:
            np.testing.assert_allclose(result["a"], exact[0], rtol=1e-5, atol=1e-6, err_msg=graph.name)
            np.testing.assert_allclose(
                np.asarray(result["b"], float), exact[1], atol=0.03, err_msg=graph.name
            )


def collectives(method, problem, devices):
    """Which collectives the compiled step has, with the shapes that they move."""
    mesh = sj.agent_mesh(devices)
    placed = lifting.stacked_sharding(mesh)
    with jax.set_mesh(mesh):
        params = jax.device_put(problem.params, placed)
        batch = jax.device_put(problem.batch(0), placed)
        step = jax.jit(method.step, static_argnums=0)
        lowered = step.lower(problem.loss_fn, params, method.init(params), batch, jax.random.key(0))
    return [(one.shape, one.kind) for one in compiled_text.collectives(lowered.compile().as_text())]


@pytest.mark.parametrize(
    ("name", "compressor"), [("q_saddle", None), ("q_saddle", sj.top_k(0.5)), ("d_saddle", sj.quantize(8))]
)
def test_a_ring_moves_one_row_across_each_border(name, compressor):
    problem = Problem(8)
    operations = collectives(make(name, sj.ring(8), compressor=compressor), problem, 4)
    numbers = sum(x[0].size for x in jax.tree.leaves(problem.params))
    assert sorted(operations) == [(f"f32[1,{numbers}]", "collective-permute")] * 2


def test_cross_gradients_move_models_and_batches_of_the_border_alone():
    problem = Problem(8)
    operations = collectives(make("n_saddle", sj.ring(8)), problem, 4)
    numbers = sum(x[0].size for x in jax.tree.leaves(problem.params))
    samples = sum(x[0].size for x in jax.tree.leaves(problem.batch(0)))
    expected = [(f"f32[1,{n}]", "collective-permute") for n in (numbers, numbers, samples, samples)]
    assert sorted(operations) == sorted(expected)


def test_a_torus_moves_whole_rows_of_its_grid_and_a_complete_graph_gathers():
    problem = Problem(16)
    operations = collectives(make("dpsgd", sj.torus(4, 4)), problem, 4)
    assert operations == [("f32[4,8]", "collective-permute")] * 2
    operations = collectives(make("dpsgd", sj.complete(16)), problem, 4)
    assert {kind for _, kind in operations} == {"all-gather"}


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_plan_brings_everybody_their_neighbours(devices):
    for topology in (sj.ring(16), sj.star(16), sj.erdos_renyi(16, 0.2, seed=3), sj.path(16)):
        moves = exchange.plan(topology.neighbours, 16, devices)
        size = 16 // devices
        for agent in range(16):
            d = agent // size
            rows_here = list(range(d * size, (d + 1) * size))
            for r, rows in moves.sent.items():
                origin = (d - r) % devices
                rows_here += [origin * size + int(row) for row in rows[origin]]
            rows_here = list(range(16)) if moves.gathers else rows_here
            assert [rows_here[s] for s in moves.senders[agent]] == topology.neighbours[agent].tolist()


@pytest.mark.parametrize("name", ["q_saddle", "n_saddle"])
def test_groups_change_nothing_but_rounding(name):
    method, problem = make(name, sj.ring(7)), Problem(7)
    alone = train(method, problem, 1, agents_per_call=1)[0]
    for agents_per_call in (3, 7):
        grouped = train(method, problem, 1, agents_per_call=agents_per_call)[0]
        chex.assert_trees_all_close(grouped, alone, rtol=1e-5, atol=1e-6)


def test_mistakes():
    with pytest.raises(ValueError, match="devices must be at most 4, the number available, got 9"):
        sj.agent_mesh(9)
    with pytest.raises(ValueError, match="batch must divide the number of devices, 4, got 3"):
        sj.agent_mesh(4, batch=3)
    with pytest.raises(ValueError, match=r"size must be .* got 4"):
        sj.ring(5).padded(4)
    with (
        jax.set_mesh(sj.agent_mesh(4)),
        pytest.raises(ValueError, match=r"a multiple of the mesh's 4 devices, got 5: see Topology\.padded"),
    ):
        sj.mix(sj.ring(5), Problem(5).params)


def test_one_agents_model_moves_alone():
    """Evaluating agents one by one must not bring all models to every device."""
    placement = Placement(8, 4)
    params = placement.by_agents(jnp.arange(80.0).reshape(8, 10))
    np.testing.assert_array_equal(placement.fetch(evaluation._one_agent, params, 5), np.arange(50.0, 60.0))
    program = jax.jit(evaluation._one_agent, out_shardings=placement.sharding()).lower(params, 5).compile()
    assert "all-gather" not in program.as_text()


def test_a_mesh_of_another_type_is_refused():
    with (
        jax.set_mesh(jax.make_mesh((4,), ("agents",), axis_types=(jax.sharding.AxisType.Explicit,))),
        pytest.raises(ValueError, match=r"must be of type Auto, got Explicit: use sj\.agent_mesh"),
    ):
        sj.mix(sj.ring(8), Problem(8).params)
