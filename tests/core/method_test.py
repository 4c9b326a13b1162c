"""The laws of a step, each over all methods: the paper's, and composed ones that it does not have."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from composed import COMPOSED
from problem import Problem, run_each
from suited import FIXED_LINKS, suited

import saddle_jax as sj
from saddle_jax import testing
from saddle_jax.core.comm_cost import comm_cost, passes_per_step
from saddle_jax.core.network import Round
from saddle_jax.methods import METHODS, base_methods
from saddle_jax.testing import methods
from saddle_jax.testing.invariants import name_of
from saddle_jax.testing.methods import INVARIANTS

EVERY = [*base_methods(), *COMPOSED]
every_method = pytest.mark.parametrize("name", EVERY)
# Methods that are made for rounds of local steps. The laws hold over several rounds.
ROUNDS = ("kgt", "dfedavgm", "dfedsam")


def make(name, topology):
    factory, options = factory_and_options(name)
    method = factory(suited(name, topology), 0.1, **options)
    return sj.saddle(method, sj.sam(0.2, every=2, reuse=True)) if name in COMPOSED else method


# What a law does not apply to, and why; everything else it must apply to.
OWN_GRADIENT = ("d_saddle", "q_saddle", "n_saddle", "dfedsam")
MOVES_THE_MEAN = {
    **dict.fromkeys(("sgp", "push_diging"), "push-sum keeps the mass, and so the mean of x w"),
    "relay_sgd": "it is told old sums",
    "ada_gossip": "every agent has an averaging rate of its own",
    **dict.fromkeys(("of_the_readme", "adam", "messages"), "it demands nothing of W"),
}
EXCEPTIONS = {
    "the mean of all models stays where gradients vanish": MOVES_THE_MEAN,
    "no more arrives than is counted": ("of_the_readme",),  # always compressed
    "saddle with rho zero is the method": OWN_GRADIENT,
    "the saddle version runs": OWN_GRADIENT,
}


def factory_and_options(name):
    """What the laws are told of: a factory, and options under which most of a method is used."""
    if name in COMPOSED:
        return COMPOSED[name], {}
    options = {"beta": 0.9, "weight_decay": 0.03, "rho": 0.2, "ascent_every": 2, "ascent_reuse": True}
    options |= {"local_steps": 2} if name in ROUNDS else {}
    return sj.METHODS[name], {key: value for key, value in options.items() if key in METHODS.options(name)}


@every_method
def test_every_invariant_holds(name):
    results = testing.check_method(*factory_and_options(name))
    silent = {each.invariant for each in results if each.status == "does not apply"}
    assert silent == {law for law, names in EXCEPTIONS.items() if name in names}


# What the messages of a method can break; the others are told of it uncompressed.
OF_MESSAGES = [
    law
    for law in INVARIANTS
    if law not in (methods.what_the_network_does_not_deliver_does_not_arrive, *INVARIANTS[-3:])
    and name_of(law) not in EXCEPTIONS
]
# SADDLe versions send what their base methods do.
PACKED = [
    *COMPOSED,
    *(name for name in base_methods() if "compressor" in METHODS.options(name) and name not in OWN_GRADIENT),
]


@pytest.mark.parametrize("name", PACKED)
def test_the_laws_hold_for_compressed_messages(name):
    """Every second method gets an operator that draws random numbers."""
    factory, options = factory_and_options(name)
    operator = (sj.sign(), sj.quantize(4))[PACKED.index(name) % 2]
    results = testing.check_method(factory, {**options, "compressor": operator}, invariants=OF_MESSAGES)
    silent = {each.invariant for each in results if each.status == "does not apply"}
    assert silent <= {"permuting the agents permutes the result"}


@every_method
def test_a_cycle_of_one_graph_is_that_graph(name):
    graph = sj.ring(5)
    graphs = (graph, sj.alternate(graph), sj.alternate(graph, graph))  # the last by a switch in the program
    once, cycled, twice = run_each([make(name, each) for each in graphs], Problem(5))
    chex.assert_trees_all_close(once, cycled, rtol=1e-6, atol=1e-6)
    chex.assert_trees_all_close(once, twice, rtol=1e-6, atol=1e-6)


@every_method
def test_graphs_take_turns_by_the_one_counter(name):
    """alternate(a, b) from the first round on and alternate(b, a) from the second both see a, then b."""
    a, b = sj.path(5), sj.star(5)
    length = len(make(name, a).rule.kinds)  # the steps of a round, in the last of which agents talk
    problem = Problem(5, steps=2 * length)
    if name in FIXED_LINKS:
        with pytest.raises(ValueError, match="topology must have the same links in every step"):
            make(name, sj.alternate(a, b)).init(problem.params)
        return
    ab, ba = (
        dataclasses.replace(make(name, sj.alternate(*pair)), gradient=sj.plain_gradient())
        for pair in ((a, b), (b, a))
    )
    one, same, other = run_each([ab, ba, ba], problem, first=(0, length, 0))
    chex.assert_trees_all_close(one, same, rtol=1e-6, atol=1e-6)
    assert np.abs(other["w"][-1] - one["w"][-1]).max() > 1e-3


PASSES = {
    "ngm": 3,
    "cga": 3,
    "n_saddle": 4.5,
    "d_saddle": 1.5,
    "q_saddle": 1.5,
    "of_the_readme": 4.5,
    "dfedsam": 2,
}


@every_method
def test_the_trace_counts_the_backward_passes(name):
    """On a ring K = 3, and SAM in every second step takes half a pass more."""
    method = make(name, sj.ring(6))
    expected = PASSES.get(name, 1.5 if name in COMPOSED else 1)
    assert passes_per_step(method, Problem(6).params) == expected


def test_the_composed_method_of_the_readme_is_booked_with_all_that_it_sends():
    """Models whole, gradients by one bit, gossip by 30 %: 4 x (4,000 + 129 + 1,325) bytes on a torus."""
    method = COMPOSED["of_the_readme"](sj.torus(3, 4), 0.1)
    cost = comm_cost(method, {"w": jnp.zeros((12, 1000))})
    assert cost.wire_bytes == (21_816,) * 12


def test_a_method_has_one_topology():
    method = sj.Method(
        "mine", sj.ring(12), sj.rule_of(optax.chain(optax.sgd(0.1), sj.gossip(sj.complete(12))))
    )
    with pytest.raises(
        ValueError, match=r"one topology: it is on ring\(12\), got a transform on complete\(12\)"
    ):
        method.init({"w": jnp.zeros((12, 3))})


@pytest.mark.parametrize("idle", [0, 4])
@pytest.mark.parametrize("graph", [sj.ring, sj.one_peer_exponential, sj.complete])
def test_a_transform_is_on_an_equal_graph_and_its_idle_agents(graph, idle):
    """On complete graphs and on those with few links: the forms of W x."""
    chain = optax.chain(
        sj.per_agent(optax.clip_by_global_norm(1.0)),
        optax.adam(0.1),
        sj.choco_gossip(sj.complete(8), sj.top_k(0.5), 0.4) if graph is sj.complete else sj.gossip(graph(8)),
    )
    method = sj.Method("mine", graph(8), sj.rule_of(chain))
    padded = dataclasses.replace(method, topology=method.topology.padded(8 + idle))
    start, target = sj.replicate({"w": jnp.zeros(3)}, 8 + idle), jnp.arange(24.0).reshape(8, 3)
    target = jnp.pad(target, ((0, idle), (0, 0)))
    ends = []
    for each, rows in ((method, 8), (padded, 8 + idle)):
        x = jax.tree.map(lambda leaf, rows=rows: leaf[:rows], start)
        state = each.init(x)
        for _ in range(3):
            x, state, _ = each.step(lambda x, d: jnp.sum((x["w"] - d) ** 2), x, state, target[:rows])
        ends.append(x["w"][:8])
    assert jnp.abs(ends[0]).max() > 0.1
    np.testing.assert_allclose(*ends, rtol=1e-6)


def test_a_transform_of_pairs_takes_idle_agents():
    chain = optax.chain(sj.neighbourhood_mean(sj.ring(5), sj.sign()), optax.sgd(0.1), sj.gossip(sj.ring(5)))
    method = sj.Method("mine", sj.ring(5).padded(8), sj.rule_of(chain, "pairs"))
    x = jnp.zeros((8, 2))
    x, _, _ = method.step(lambda x, d: jnp.sum((x - d) ** 2), x, method.init(x), jnp.ones((8, 2)))
    np.testing.assert_array_equal(x[5:], 0)
    assert (x[:5] > 0).all()


def test_a_transform_is_not_on_a_larger_graph_of_its_kind():
    for own in (sj.ring(8), sj.ring(12)):
        method = sj.Method("mine", sj.ring(10).padded(12), sj.rule_of(sj.gossip(own)))
        with pytest.raises(ValueError, match=r"it is on ring\(10\), got a transform on ring"):
            method.init(jnp.zeros((12, 3)))
    method = sj.Method("mine", sj.ring(8), sj.rule_of(sj.gossip(sj.ring(9))))
    with pytest.raises(ValueError, match="leading axis A = 9"):
        method.init(jnp.zeros((8, 3)))


def test_a_round_knows_both_accounts():
    numbers = jax.ShapeDtypeStruct((1000,), jnp.float32)
    whole, signs = Round((numbers,), (None,)), Round((numbers,), (sj.sign(),))
    assert (whole.wire_bytes, whole.paper_bits) == (4000, 32_000)
    assert (signs.wire_bytes, signs.paper_bits) == (129, 1000)


@pytest.mark.parametrize(
    "make",
    [
        lambda graph: sj.qgm(graph, 0.1, compressor=sj.quantize(4)),
        lambda graph: sj.saddle(sj.dpsgd(graph, 0.1, local_steps=2), sj.sam(0.2, every=3)),
        lambda graph: sj.momentum_tracking(graph, 0.1, init="mean"),
    ],
    ids=["one kind", "pairs of kinds", "a first step"],
)
def test_a_compiled_step_is_the_step_of_its_kind(make):
    method, problem, keys = make(sj.ring(5)), Problem(5, steps=6), jax.random.split(jax.random.key(0), 6)
    step = method.compile(problem.loss_fn, diagnostics=True)
    by_hand = jax.jit(method.step, static_argnums=0, static_argnames=("kind", "diagnostics"))
    compiled = expected = (problem.params, method.init(problem.params))
    for t in range(6):
        *compiled, metrics = step(*compiled, problem.batch(t), keys[t])
        *expected, wanted = by_hand(
            problem.loss_fn, *expected, problem.batch(t), keys[t], kind=method.kind(t), diagnostics=True
        )
        assert set(metrics) == set(wanted)
    chex.assert_trees_all_close(compiled, expected, rtol=1e-6)

    def inside(carry, inputs):
        return step(*carry, *inputs)[:2], None

    batches = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(problem.batch, range(6)))
    start = (problem.params, method.init(problem.params))
    scanned, _ = jax.lax.scan(inside, start, (batches, keys))  # there t is not known
    chex.assert_trees_all_close(scanned, tuple(expected), rtol=1e-4, atol=1e-6)


def test_a_compiled_step_is_traced_once_for_each_kind():
    method, problem, traces = sj.dpsgd(sj.ring(5), 0.1, local_steps=3), Problem(5, steps=7), []

    def loss_fn(params, batch):
        traces.append(batch)
        return problem.loss_fn(params, batch)

    step, carry = method.compile(loss_fn), (problem.params, method.init(problem.params))
    for t in range(7):
        *carry, _ = step(*carry, problem.batch(t))
    assert len(traces) == 2


def test_the_kind_of_a_step_is_a_pair():
    method = sj.saddle(sj.dpsgd(sj.ring(5), 0.1, local_steps=2), sj.sam(0.2, every=3))
    assert [method.kind(t) for t in range(6)] == [(1, 0), (0, 1), (1, 1), (0, 0), (1, 1), (0, 1)]
    problem = Problem(5)
    arguments = (problem.loss_fn, problem.params, method.init(problem.params), problem.batch(0))
    ends = [method.step(*arguments, kind=kind)[0] for kind in ((1, 0), (1, 1), (0, 0), (0, 1))]
    apart = [np.abs(one["w"] - other["w"]).max() for one, other in itertools.combinations(ends, 2)]
    assert min(apart) > 1e-4
    chex.assert_trees_all_close(method.step(*arguments)[0], ends[0], rtol=1e-6)
