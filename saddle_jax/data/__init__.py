"""Datasets, how they are divided among agents, and the batches that agents see."""

from saddle_jax.data.batches import Batches as Batches
from saddle_jax.data.batches import take as take
from saddle_jax.data.dataset import DataError as DataError
from saddle_jax.data.dataset import Dataset as Dataset
from saddle_jax.data.partition import Partition as Partition
from saddle_jax.data.partition import Skew as Skew
from saddle_jax.data.partition import dirichlet_partition as dirichlet_partition
from saddle_jax.data.partition import given_partition as given_partition
from saddle_jax.data.partition import iid_partition as iid_partition
from saddle_jax.data.partition import make_partition as make_partition
from saddle_jax.data.partition import per_agent_dirichlet_partition as per_agent_dirichlet_partition
from saddle_jax.data.partition import quantity_skew as quantity_skew
from saddle_jax.data.partition import shards_partition as shards_partition
from saddle_jax.data.recipes import Recipe as Recipe
from saddle_jax.data.sources import load as load
from saddle_jax.data.user_data import from_huggingface as from_huggingface
from saddle_jax.data.user_data import from_samples as from_samples
