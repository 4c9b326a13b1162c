"""QGM (Lin et al., 2021): momentum from the step that gossip really made. Algorithms 1 and 2."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from saddle_jax import checks
from saddle_jax.choco import Order, model_gossip
from saddle_jax.compression import Compressor, identity
from saddle_jax.gradients import LocalGradients
from saddle_jax.methods.method import Method
from saddle_jax.mixing import Form, require_params
from saddle_jax.topology import Topology
from saddle_jax.trees import in_memory
from saddle_jax.types import Array, Params, ScalarOrSchedule


class QuasiGlobalMomentumState(NamedTuple):
    """State of `quasi_global_momentum`."""

    step: Array  # steps taken, int32 []: what the schedule is asked with
    momentum: Params  # m-hat, in units of a gradient [A, ...]
    gossip: optax.OptState  # of the wrapped gossip


def quasi_global_momentum(
    gossip: optax.GradientTransformation,
    learning_rate: ScalarOrSchedule,
    *,
    beta: Any = 0.9,
    mu: Any = None,
    nesterov: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """Gradients to updates: momentum, learning rate and the given gossip, which the momentum watches.

    Args:
      gossip: the averaging inside the step: `sj.gossip`, `sj.choco_gossip`, or a chain that ends
        in one. It is handed x_{t+1/2} - x_t and returns x_{t+1} - x_t.
      learning_rate: eta, a number or an optax schedule.
      beta: momentum coefficient in [0, 1).
      mu: coefficient of the moving average m-hat in [0, 1); None means mu = beta.
      nesterov: direction g + beta m, as the paper's hyper-parameters say; False is the printed
        heavy ball, direction m.

    Returns:
      A transform of stacked gradients [A, ...].
    """
    checks.instance("gossip", gossip, optax.GradientTransformation, "sj.gossip(topology)")
    learning_rate = checks.learning_rate(learning_rate)
    beta = checks.real("beta", beta, at_least=0.0, below=1.0)
    mu = checks.real("mu", beta if mu is None else mu, at_least=0.0, below=1.0)
    gossip = optax.with_extra_args_support(gossip)

    def init_fn(params: Params) -> QuasiGlobalMomentumState:
        momentum = jax.tree.map(jnp.zeros_like, params)
        return QuasiGlobalMomentumState(jnp.zeros([], jnp.int32), momentum, gossip.init(params))

    def update_fn(updates, state, params=None, **extra_args):
        params = require_params(params)
        eta = learning_rate(state.step) if callable(learning_rate) else learning_rate
        # A schedule may end at zero: the step is then no multiple of eta, and m-hat only decays.
        per_eta = jnp.where(eta == 0, 0.0, 1.0 / jnp.where(eta == 0, 1.0, eta))

        def descend(g, m_hat):
            m = beta * m_hat + g  # line 3 (Q-SADDLe: 5)
            direction = g + beta * m if nesterov else m
            return (-eta * direction).astype(g.dtype)  # line 6: x_{t+1/2} - x_t

        # Each neighbour reads the half step, and both models and momentum read the whole one.
        half_step = in_memory(jax.tree.map(descend, updates, state.momentum))
        moved, gossip_state = gossip.update(half_step, state.gossip, params, **extra_args)  # 7, 8

        moved = in_memory(moved)

        def remember(m_hat, u):
            d = -u * per_eta  # line 9: (x_t - x_{t+1}) / eta
            return (mu * m_hat + (1 - mu) * d).astype(m_hat.dtype)  # line 10

        momentum = jax.tree.map(remember, state.momentum, moved)
        taken = optax.safe_increment(state.step)
        return moved, QuasiGlobalMomentumState(taken, momentum, gossip_state)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def qgm(
    topology: Topology,
    learning_rate: ScalarOrSchedule,
    *,
    beta: Any = 0.9,
    mu: Any = None,
    nesterov: bool = True,
    weight_decay: Any = 0.0,
    gamma: Any = 1.0,
    compressor: Compressor | None = None,
    order: Order = "choco",
    form: Form = "auto",
) -> Method:
    """QGM; with a compressor, Comp QGM.

    Args:
      topology: who hears whom.
      learning_rate: eta, a number or an optax schedule.
      beta: momentum coefficient in [0, 1).
      mu: coefficient of the moving average m-hat in [0, 1); None means mu = beta, as in the paper.
      nesterov: direction g + beta m, as the paper's hyper-parameters say; False is the printed
        heavy ball, direction m.
      weight_decay: coupled L2, taken at x_t and added to the gradient before the momentum.
      gamma: averaging rate in (0, 1].
      compressor: the operator Q; None sends models as they are.
      order: of compressed gossip, "choco" or "paper", see `sj.choco_gossip`.
      form: of mixing, "auto", "dense" or "table", see `sj.mixing_form`.
    """
    mixer = model_gossip(topology, gamma, compressor, order, form)
    transform = optax.chain(
        optax.add_decayed_weights(checks.real("weight_decay", weight_decay, at_least=0.0)),
        quasi_global_momentum(mixer, learning_rate, beta=beta, mu=mu, nesterov=nesterov),
    )
    return Method(topology, LocalGradients(), transform, "qgm", rounds=(compressor or identity(),))
