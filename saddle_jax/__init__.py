"""saddle_jax: sharpness-aware decentralized deep learning, all agents in one JAX program.

    import saddle_jax as sj

README.md shows the first steps; `saddle_jax.types` explains the axes A, B and K.
"""

from saddle_jax.agents import agent_mesh as agent_mesh
from saddle_jax.agents import stacked_sharding as stacked_sharding
from saddle_jax.ascents import plain as plain
from saddle_jax.ascents import sam as sam
from saddle_jax.checks import ArgumentError as ArgumentError
from saddle_jax.compression import Compressor as Compressor
from saddle_jax.compression import Payload as Payload
from saddle_jax.compression import identity as identity
from saddle_jax.compression import quantize as quantize
from saddle_jax.compression import random_k as random_k
from saddle_jax.compression import sign as sign
from saddle_jax.compression import top_k as top_k
from saddle_jax.core.ascent import Ascent as Ascent
from saddle_jax.core.gossip import Gossip as Gossip
from saddle_jax.core.gossip import choco as choco
from saddle_jax.core.gossip import exact as exact
from saddle_jax.core.graphs import Cycle as Cycle
from saddle_jax.core.graphs import chain as chain
from saddle_jax.core.graphs import circulant as circulant
from saddle_jax.core.graphs import complete as complete
from saddle_jax.core.graphs import cycle as cycle
from saddle_jax.core.graphs import erdos_renyi as erdos_renyi
from saddle_jax.core.graphs import exponential as exponential
from saddle_jax.core.graphs import from_networkx as from_networkx
from saddle_jax.core.graphs import hypercube as hypercube
from saddle_jax.core.graphs import isolated as isolated
from saddle_jax.core.graphs import random_regular as random_regular
from saddle_jax.core.graphs import ring as ring
from saddle_jax.core.graphs import star as star
from saddle_jax.core.graphs import torus as torus
from saddle_jax.core.method import Method as Method
from saddle_jax.core.method import MethodState as MethodState
from saddle_jax.core.method import Metrics as Metrics
from saddle_jax.core.method import Rule as Rule
from saddle_jax.core.method import Step as Step
from saddle_jax.core.network import Message as Message
from saddle_jax.core.network import Network as Network
from saddle_jax.core.network import mix as mix
from saddle_jax.core.network import mixing_form as mixing_form
from saddle_jax.core.topology import Topology as Topology
from saddle_jax.core.topology import from_matrix as from_matrix
from saddle_jax.core.transforms import choco_gossip as choco_gossip
from saddle_jax.core.transforms import gossip as gossip
from saddle_jax.core.transforms import per_agent as per_agent
from saddle_jax.core.transforms import rule_of as rule_of
from saddle_jax.methods import METHODS as METHODS
from saddle_jax.methods.dpsgd import dpsgd as dpsgd
from saddle_jax.methods.gradients import cross_gradients as cross_gradients
from saddle_jax.methods.gradients import local_gradients as local_gradients
from saddle_jax.methods.ngm import neighbourhood_mean as neighbourhood_mean
from saddle_jax.methods.ngm import ngm as ngm
from saddle_jax.methods.qgm import qgm as qgm
from saddle_jax.methods.qgm import quasi_global_momentum as quasi_global_momentum
from saddle_jax.methods.saddle import d_saddle as d_saddle
from saddle_jax.methods.saddle import n_saddle as n_saddle
from saddle_jax.methods.saddle import q_saddle as q_saddle
from saddle_jax.methods.saddle import saddle as saddle
from saddle_jax.trees import agent_norms as agent_norms
from saddle_jax.trees import consensus as consensus
from saddle_jax.trees import consensus_distance as consensus_distance
from saddle_jax.trees import replicate as replicate
from saddle_jax.version import __version__ as __version__
