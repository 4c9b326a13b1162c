"""Papers to reproduce, one module or subpackage each."""

# What the SADDLe paper leaves open: options of methods and gossip, the network's norm, and whether quantizers
# are divided by tau.
INTERPRETATIONS = ("order", "nesterov", "self_gradient", "ascent_reuse", "norm", "biased")
# Those that need no data and seconds to minutes; SADDLe's tables are of training runs.
PAPERS = ("base_graph", "beyond_spectral_gap", "choco", "motef", "relaysgd", "relaysgd_loss")
