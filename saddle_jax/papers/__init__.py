"""Papers to reproduce, one module or subpackage each."""

# What the SADDLe paper leaves open: settings with another interpretation. A further one is `biased`, whether
# quantizers are divided by tau.
INTERPRETATIONS = ("order", "nesterov", "self_gradient", "ascent_reuse", "norm")
# Those that need no data and seconds to minutes; SADDLe's tables are of training runs.
PAPERS = ("base_graph", "beyond_spectral_gap", "choco", "motef", "relaysgd", "relaysgd_loss")
