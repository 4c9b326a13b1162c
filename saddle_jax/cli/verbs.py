"""The verbs of the saddle command, and where each is implemented."""

# Each verb is a function of a module that is imported when it is used; it may return the exit status.
VERBS = {
    "train": ("saddle_jax.cli.train", "run"),
    "config": ("saddle_jax.cli.settings", "show_config"),
    "reproduce": ("saddle_jax.cli.reproduce", "run"),
    "compare": ("saddle_jax.cli.compare", "run"),
    "methods": ("saddle_jax.cli.methods", "show_methods"),
    "gradients": ("saddle_jax.cli.methods", "show_gradients"),
    "best": ("saddle_jax.cli.best", "run"),
    "list": ("saddle_jax.cli.runs", "show_list"),
    "evaluate": ("saddle_jax.cli.evaluate", "run"),
    "export": ("saddle_jax.cli.runs", "export"),
    "downsample": ("saddle_jax.cli.runs", "show_downsample"),
    "report": ("saddle_jax.cli.report", "run"),
    "serve": ("saddle_jax.cli.serve", "run"),
    "figure": ("saddle_jax.cli.report", "figure"),
    "sharpness": ("saddle_jax.cli.sharpness", "run"),
    "landscape": ("saddle_jax.cli.landscape", "run"),
    "cost": ("saddle_jax.cli.cost", "run"),
    "theory": ("saddle_jax.cli.theory", "run"),
    "plan": ("saddle_jax.cli.plan", "run"),
    "bench": ("benchmarks.__main__", "run"),
    "check": ("saddle_jax.cli.check", "run"),
    "new": ("saddle_jax.cli.new", "run"),
    "data": ("saddle_jax.cli.data", "run"),
    "topology": ("saddle_jax.cli.topology", "run"),
    "demo": ("saddle_jax.cli.demo", "run"),
    "doctor": ("saddle_jax.cli.doctor", "run"),
    "completion": ("saddle_jax.cli.completion", "run"),
}

# Verbs that are done before JAX would be imported.
WITHOUT_JAX = {"completion", "version", "--version", "help", "--help", "-h"}

# Verbs that compare devices with each other, and how many they need.
DEVICES = {"check": 4}
