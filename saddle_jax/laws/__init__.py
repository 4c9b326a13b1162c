"""The laws that hold for all things of a kind, to be tried on anything that is brought in.

from saddle_jax import laws

assert not laws.failures(laws.check_method(my_method))
"""

from saddle_jax.laws.ascents import check_ascent as check_ascent
from saddle_jax.laws.compressors import check_compressor as check_compressor
from saddle_jax.laws.graphs import check_graph as check_graph
from saddle_jax.laws.methods import check_method as check_method
from saddle_jax.laws.verdicts import Verdict as Verdict
from saddle_jax.laws.verdicts import failures as failures
