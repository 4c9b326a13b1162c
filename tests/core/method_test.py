"""The laws of a step, each over all methods: the paper's, and composed ones that it does not have."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from composed import COMPOSED
from problem import IRREGULAR, Problem, compiled, run
from suited import FIXED_LINKS, suited

import saddle_jax as sj
from saddle_jax.core.ledger import open_ledger, passes_per_step
from saddle_jax.core.messages import Round
from saddle_jax.devices import lifting
from saddle_jax.methods import options_of

EVERY = [*sj.METHODS, *COMPOSED]
every_method = pytest.mark.parametrize("name", EVERY)
# What methods_common_test.py and exchange_test.py have for the paper's methods too.
every_composed = pytest.mark.parametrize("name", COMPOSED)
every_compressor = pytest.mark.parametrize("compressor", [None, sj.quantize(4)], ids=str)


# Methods that are made for rounds of local steps. The laws hold over several rounds.
ROUNDS = ("kgt", "dfedavgm", "dfedsam")


def first_talk(method):
    """The first step in which agents talk."""
    return next(t for t in range(9) if method.rule.phase(t) in method.rule.talking)


def make(name, topology, compressor=None):
    if name in COMPOSED:
        return sj.saddle(COMPOSED[name](topology, 0.1, compressor), sj.sam(0.2, every=2, reuse=True))
    options = {"beta": 0.9, "weight_decay": 0.03, "rho": 0.2, "ascent_every": 2, "ascent_reuse": True}
    options |= {"local_steps": 2} if name in ROUNDS else {}
    known = {option: value for option, value in options.items() if option in options_of(name)}
    if compressor is not None:
        if "compressor" not in options_of(name):
            pytest.skip("it compresses nothing")
        known["compressor"] = compressor
    return sj.METHODS[name](suited(name, topology), 0.1, **known)


@every_compressor
@every_method
def test_every_leaf_of_a_state_is_of_agents_of_pairs_or_a_scalar(name, compressor):
    method, problem = make(name, IRREGULAR, compressor), Problem(5)
    state = method.init(problem.params)
    shapes = {leaf.shape[1:] for leaf in jax.tree.leaves(problem.params)}
    for leaf in jax.tree.leaves(state):
        by_agent_or_link = leaf.shape in ((5,), (5, method.topology.slots))
        assert leaf.ndim == 0 or by_agent_or_link or leaf.shape[1:] in shapes or leaf.shape[2:] in shapes
        assert leaf.ndim == 0 or len(leaf) == 5
    given = (problem.params, state, problem.batch(0), jax.random.key(0))
    _, after, _ = jax.eval_shape(functools.partial(method.step, problem.loss_fn), *given)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, after)


@pytest.fixture
def travelled(monkeypatch):
    """The real messages of each round, as the network was handed them."""
    seen = {}
    original = sj.Network.charge

    def charge(self, sent, axes=1):
        original(self, sent, axes)
        seen[id(self.book[-1])] = ([sent] if isinstance(sent, sj.Message) else list(sent), axes, self.book)

    monkeypatch.setattr(sj.Network, "charge", charge)
    return seen


def encoded_sizes(travelled):
    """The bytes of each message of a step as agent 2 sends it over one link."""
    for book in {id(book): book for _, _, book in travelled.values()}.values():
        for entry in book:
            messages, axes, _ = travelled[id(entry)]
            agent = (2, 1)[:axes]  # agent 2, and its first neighbour
            for message in messages:
                packed = message.packed or sj.identity()
                for leaf in jax.tree.leaves(message.like):
                    yield packed.encode(leaf[agent], jax.random.key(1)).data.size


@every_compressor
@every_method
def test_the_books_equal_the_bytes_of_the_real_encodings(name, compressor, travelled):
    method, problem = make(name, IRREGULAR, compressor), Problem(5)
    state, ledger = method.init(problem.params), open_ledger(method, problem.params)
    sizes = []
    for t in range(len(method.rule.opening) + len(method.rule.phases)):
        travelled.clear()
        at = (problem.params, state._replace(t=jnp.int32(t)), problem.batch(0), jax.random.key(0))
        method.step(problem.loss_fn, *at, phase=method.phase(t))
        encoded = sum(encoded_sizes(travelled))
        assert ledger.wire[method.rule.phase(t)].link == encoded
        sizes.append(encoded)
    assert ledger.link_bytes == max(sizes) > 0
    first = next(size for size in sizes if size)
    assert ledger.wire_bytes == tuple(first * int(n) for n in method.topology.out_degree)


@every_method
def test_a_cycle_of_one_graph_is_that_graph(name):
    problem, graph = Problem(5), sj.ring(5)
    once, _, _ = run(make(name, graph), problem)
    cycled, _, _ = run(make(name, sj.cycle(graph)), problem)
    chex.assert_trees_all_equal(once, cycled)
    twice, _, _ = run(make(name, sj.cycle(graph, graph)), problem)  # by a switch inside the program
    chex.assert_trees_all_close(once, twice, rtol=1e-6, atol=1e-6)


@every_method
def test_graphs_take_turns_by_the_one_counter(name):
    """cycle(a, b) from the first round on and cycle(b, a) from the second both see a, then b."""
    a, b = sj.chain(5), sj.star(5)
    length = len(make(name, a).rule.phases)  # the steps of a round, in the last of which agents talk
    problem = Problem(5, steps=2 * length)
    if name in FIXED_LINKS:
        with pytest.raises(ValueError, match="topology must have the same links in every step"):
            make(name, sj.cycle(a, b)).init(problem.params)
        return
    ends = []
    for first, graphs in ((0, sj.cycle(a, b)), (length, sj.cycle(b, a))):
        method = dataclasses.replace(make(name, graphs), ascent=sj.plain())
        params, state = problem.params, method.init(problem.params)._replace(t=jnp.int32(first))
        step = jax.jit(method.step, static_argnums=0, static_argnames="phase")
        for t in range(2 * length):
            phase = method.phase(first + t)
            params, state, _ = step(problem.loss_fn, params, state, problem.batch(t), phase=phase)
        assert int(state.t) == first + 2 * length
        ends.append(params)
    chex.assert_trees_all_close(*ends, rtol=1e-6, atol=1e-6)
    other = dataclasses.replace(make(name, sj.cycle(b, a)), ascent=sj.plain())
    swapped, _, _ = run(other, problem)
    assert np.abs(swapped["w"][-1] - ends[0]["w"]).max() > 1e-3


@every_compressor
@every_composed
def test_without_links_nobody_hears_anybody(name, compressor):
    problem = Problem(4)
    together, _, _ = run(make(name, sj.isolated(4), compressor), problem)
    other = Problem(4, seed=1)
    other.start[0], other.x[:, 0], other.y[:, 0] = problem.start[0], problem.x[:, 0], problem.y[:, 0]
    apart, _, _ = run(make(name, sj.isolated(4), compressor), other)
    chex.assert_trees_all_equal(*(jax.tree.map(lambda x: x[:, 0], h) for h in (together, apart)))
    assert open_ledger(make(name, sj.isolated(4)), problem.params).wire_bytes == (0, 0, 0, 0)


@every_composed
def test_permuting_the_agents_permutes_the_result(name):
    order = np.array([3, 0, 4, 2, 1])
    with jax.enable_x64(True):
        problem, permuted = Problem(5), Problem(5)
        permuted.x, permuted.y = problem.x[:, order], problem.y[:, order]
        permuted.start = [problem.start[i] for i in order]
        shuffled = sj.from_matrix(IRREGULAR.mixing[np.ix_(order, order)])
        history, _, _ = run(make(name, IRREGULAR), problem)
        result, _, _ = run(make(name, shuffled), permuted)
        chex.assert_trees_all_close(result, jax.tree.map(lambda x: x[:, order], history), atol=1e-11)


@every_compressor
@every_composed
def test_a_second_call_does_not_recompile_and_resuming_is_the_same_bit_for_bit(name, compressor):
    problem = Problem(6)
    method = make(name, sj.ring(6), compressor)
    chex.clear_trace_counter()
    step = compiled(chex.assert_max_traces(method.step, n=1), static_argnums=0)

    def go(params, state, steps):
        for t in steps:
            params, state, _ = step(problem.loss_fn, params, state, problem.batch(t), jax.random.key(t))
        return params, state

    start = jax.tree.map(lambda x: x.astype(jnp.float32), problem.params)
    through = go(start, method.init(start), range(4))
    halfway = jax.device_get(go(start, method.init(start), range(2)))
    chex.assert_trees_all_equal(go(*halfway, range(2, 4)), through)


@every_composed
def test_devices_change_nothing_but_rounding(name):
    problem, method = Problem(8), make(name, sj.ring(8), sj.sign())
    results = []
    for devices in (1, 4):
        mesh = sj.agent_mesh(devices)
        with jax.set_mesh(mesh):
            params = jax.device_put(problem.params, lifting.stacked_sharding(mesh))
            state = method.init(params)
            step = compiled(method.step, static_argnums=0)
            for t in range(2):
                params, state, _ = step(problem.loss_fn, params, state, problem.batch(t), jax.random.key(t))
            results.append(jax.device_get((params, state)))
    chex.assert_trees_all_close(*results, rtol=1e-5, atol=1e-5)


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
    ledger = open_ledger(method, {"w": jnp.zeros((12, 1000))})
    assert ledger.wire_bytes == (21_816,) * 12


def test_a_method_has_one_topology():
    method = sj.Method(
        "mine", sj.ring(12), sj.rule_of(optax.chain(optax.sgd(0.1), sj.gossip(sj.complete(12))))
    )
    with pytest.raises(
        ValueError, match=r"one topology: it is on ring\(12\), got a transform on complete\(12\)"
    ):
        method.init({"w": jnp.zeros((12, 3))})


def test_a_round_knows_both_accounts():
    numbers = jax.ShapeDtypeStruct((1000,), jnp.float32)
    whole, signs = Round((numbers,), (None,)), Round((numbers,), (sj.sign(),))
    assert (whole.wire_bytes, whole.paper_bits) == (4000, 32_000)
    assert (signs.wire_bytes, signs.paper_bits) == (129, 1000)
