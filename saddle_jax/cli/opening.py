"""Options that the verbs share which open runs again."""

from absl import flags


def opening_options(options: flags.FlagValues) -> None:
    """Defines --data_dir and --code of the verbs that open runs again."""
    meaning = "Folder of the runs' data (default: TFDS_DATA_DIR; never a place that a run's folder names)."
    flags.DEFINE_string("data_dir", None, meaning, flag_values=options)
    meaning = "FILE.py or module that runs were trained with and that may be imported; repeat it for several."
    flags.DEFINE_multi_string("code", [], meaning, flag_values=options)
