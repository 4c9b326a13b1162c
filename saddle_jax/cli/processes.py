"""Several processes of one run: how they find each other where no cluster manager says so."""

from absl import flags

from saddle_jax.cli.usage import mistakes


def join(options: flags.FlagValues) -> None:
    """Waits for the other processes of a run, if there are any; this does not start JAX's backends."""
    from saddle_jax.devices import hosts

    with mistakes():
        hosts.join(
            options.coordinator,
            options.processes,
            options.process,
            timeout=options.join_timeout,
            heartbeat_timeout=options.heartbeat_timeout,
        )


def process_options(options: flags.FlagValues) -> None:
    """Defines how several processes find each other where no cluster manager says so."""
    meaning = "HOST:PORT of process 0, in a run over several processes."
    flags.DEFINE_string("coordinator", None, meaning, flag_values=options)
    meaning = "Number of processes; 1 trains alone, even under SLURM or MPI."
    flags.DEFINE_integer("processes", None, meaning, flag_values=options)
    flags.DEFINE_integer("process", None, "Number of this process, from 0.", flag_values=options)
    meaning = "Seconds to wait for the other processes."
    flags.DEFINE_integer("join_timeout", 300, meaning, lower_bound=1, flag_values=options)
    meaning = "Seconds without a sign of life after which another process counts as dead."
    flags.DEFINE_integer("heartbeat_timeout", 100, meaning, lower_bound=1, flag_values=options)
