"""D-PSGD (Lian et al., 2017): a local step, then the neighbourhood's average. The paper's Algorithm 5."""

from typing import Any

import optax

from saddle_jax import checks
from saddle_jax.choco import Order, model_gossip
from saddle_jax.compression import Compressor, identity
from saddle_jax.gradients import LocalGradients
from saddle_jax.methods.method import Method
from saddle_jax.methods.momentum import local_momentum
from saddle_jax.mixing import Form
from saddle_jax.topology import Topology
from saddle_jax.types import ScalarOrSchedule


def dpsgd(
    topology: Topology,
    learning_rate: ScalarOrSchedule,
    *,
    beta: Any = 0.0,
    nesterov: bool = True,
    weight_decay: Any = 0.0,
    gamma: Any = 1.0,
    compressor: Compressor | None = None,
    order: Order = "choco",
    form: Form = "auto",
) -> Method:
    """D-PSGD; with a compressor, Comp D-PSGD (CHOCO-SGD).

    Args:
      topology: who hears whom.
      learning_rate: eta, a number or an optax schedule.
      beta: local momentum. The printed algorithm has none; the hyper-parameters say 0.9 for all
        experiments, and the paper does not tell which of the two its D-PSGD table used.
      nesterov: with beta > 0, direction g + beta m instead of m.
      weight_decay: coupled L2, taken at x_t and added to the gradient.
      gamma: averaging rate in (0, 1].
      compressor: the operator Q; None sends models as they are.
      order: of compressed gossip, "choco" or "paper", see `sj.choco_gossip`.
      form: of mixing, "auto", "dense" or "table", see `sj.mixing_form`.
    """
    mixer = model_gossip(topology, gamma, compressor, order, form)
    transform = optax.chain(
        optax.add_decayed_weights(checks.real("weight_decay", weight_decay, at_least=0.0)),
        local_momentum(beta, nesterov),  # not printed
        optax.scale_by_learning_rate(checks.learning_rate(learning_rate)),  # lines 5 and 6: x_{t+1/2} - x_t
        mixer,  # lines 7 and 8
    )
    return Method(topology, LocalGradients(), transform, "dpsgd", rounds=(compressor or identity(),))
