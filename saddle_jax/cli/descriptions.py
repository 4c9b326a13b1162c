"""What each verb does, in a sentence, in the order in which `saddle help` lists them."""

from typing import NamedTuple


class Description(NamedTuple):
    """What a verb does, in a sentence, and a call that works as it stands."""

    meaning: str
    example: str = ""


_D = Description
# By the headings of `saddle help`; a verb may have verbs of its own, as data has.
SECTIONS: dict[str, dict[str, Description]] = {
    "Begin": {
        "demo": _D("Show the paper's point in about 90 seconds: two methods, their curves and sharpness."),
        "doctor": _D("Tell whether everything works here: versions, devices, data, what to install."),
        "completion": _D("Print a script that completes verbs and settings in bash, zsh or fish."),
        "version": _D("Print the version of saddle_jax."),
    },
    "Train and compare": {
        "train": _D("Train one run, or several at once with seeds and --sweep.", "train --config.method=qgm"),
        "compare": _D(
            "Train a grid of methods, compressors, graphs and seeds, and print a table of results.",
            "compare --methods=qgm,q_saddle --workdir=runs/two",
        ),
        "config": _D("Show every setting with its value and meaning."),
        "methods": _D("Show what each method sends, computes and needs; or one method in full."),
        "gradients": _D("Show the ways to take a gradient, SAM and its relatives; or one in full."),
        "plan": _D("Compile a run for devices that need not be here, and tell whether it fits."),
    },
    "Look at runs": {
        "list": _D("List the runs below a folder and how far each has come."),
        "best": _D("Find the best setting of every method below a folder."),
        "evaluate": _D("Evaluate a run's models again, also by other metrics."),
        "report": _D("Write one HTML page of a run, or of several side by side."),
        "serve": _D("Serve a local page over all runs of a folder, live while they train.", "serve runs"),
        "figure": _D(
            "Draw a figure of runs; KIND is curves, sharpness, compression, zeta, bits, rho or partition.",
            "figure curves runs/both --output=curves.pdf",
        ),
        "sharpness": _D("Measure the largest eigenvalue of the Hessian at a run's checkpoints."),
        "landscape": _D("Draw the loss around the models of runs, as pictures and a page to turn."),
        "downsample": _D(
            "Make small open copies of runs: settings, results, and metrics in means of some lines."
        ),
        "export": _D("Write a run's model as safetensors or msgpack."),
    },
    "The paper": {
        "reproduce": _D(
            "Run a table or a figure of the paper and set it beside the printed one.",
            "reproduce --table=1 --scale=smoke --workdir=runs/paper",
        ),
        "cost": _D("Derive the paper's communication costs and show them beside exact bytes."),
        "theory": _D("Evaluate the convergence theorem for constants, on a test-bed, or for a run."),
    },
    "Your own": {
        "new": _D("Write a file to begin with, and a test, for a method, model, dataset and so on."),
        "check": _D("Test which invariants hold for something of your own, or for a name of ours."),
    },
    "Parts and speed": {
        "data": _D("List, prepare, show and divide datasets."),
        "data list": _D("List the datasets and whether they are here."),
        "data prepare": _D("Download and prepare a dataset (needs internet and TensorFlow)."),
        "data show": _D("Show the counts and shapes of a dataset, and draw some of its images."),
        "data partition": _D("Show which agent would hold which samples."),
        "topology": _D("Show the properties of a graph, and draw it.", 'topology "torus(5, 8)" 40'),
        "bench": _D("Measure speed as ratios, against PyTorch or a copy."),
        "bench input": _D("Measure what gathering and augmenting images costs beside a step."),
    },
}
DESCRIPTIONS = {verb: said for verbs in SECTIONS.values() for verb, said in verbs.items()}
