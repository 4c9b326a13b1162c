"""The verbs of the saddle command: where each is implemented, and the help that lists them."""

# Each verb is a function of a module that is imported when it is used; it may return the exit status.
VERBS = {
    "train": ("saddle_jax.cli.train", "run"),
    "config": ("saddle_jax.cli.settings", "show_config"),
    "reproduce": ("saddle_jax.cli.reproduce", "run"),
    "compare": ("saddle_jax.cli.compare", "run"),
    "methods": ("saddle_jax.cli.methods", "show_methods"),
    "ascents": ("saddle_jax.cli.methods", "show_ascents"),
    "best": ("saddle_jax.cli.best", "run"),
    "list": ("saddle_jax.cli.runs", "show_list"),
    "evaluate": ("saddle_jax.cli.evaluate", "run"),
    "export": ("saddle_jax.cli.runs", "export"),
    "thin": ("saddle_jax.cli.runs", "show_thin"),
    "report": ("saddle_jax.cli.report", "run"),
    "serve": ("saddle_jax.cli.serve", "run"),
    "figure": ("saddle_jax.cli.report", "figure"),
    "sharpness": ("saddle_jax.cli.sharpness", "run"),
    "landscape": ("saddle_jax.cli.landscape", "run"),
    "cost": ("saddle_jax.cli.cost", "run"),
    "theory": ("saddle_jax.cli.theory", "run"),
    "plan": ("saddle_jax.cli.plan", "run"),
    "bench": ("saddle_jax.cli.bench", "run"),
    "check": ("saddle_jax.cli.check", "run"),
    "new": ("saddle_jax.cli.new", "run"),
    "data": ("saddle_jax.cli.data", "run"),
    "topology": ("saddle_jax.cli.topology", "run"),
}

# Verbs that compare devices with each other, and how many they need.
DEVICES = {"check": 4}

HELP = """usage: saddle VERB ...        (saddle VERB --help shows its options)

  train                     train; --config=FILE.py[:VARIANT], --config.FIELD=VALUE, --workdir=DIR;
                            several runs in one program: --config.seeds=0,1,2 --sweep=learning_rate:0.05,0.1
  config                    every setting, its value and its meaning
  methods [NAME]            what each method sends, computes, remembers and demands; of one, all options
  ascents [NAME]            the same of the ways to take a gradient: SAM and its relatives; --json
  compare                   all of --methods=qgm,d2 --compressors=none,quantize8 --ascents=none,sam
                            --topologies=ring,torus --drops=0,0.1 --seeds=0,1,2, and a table; --workdir=DIR
  reproduce                 a table of the paper beside ours; --table=1 --scale=cpu --workdir=DIR, or --list
  best DIR...               the best setting of every method below a folder, and its neighbours on the grid;
                            --metric=test_loss --by=method,topology --output=FILE.tex
  list DIR                  runs and their state
  evaluate DIR              evaluate a run's newest checkpoint again; --agent=3 for one agent's, --replica=1;
                            --metrics=top5,class_accuracy,train_loss,mine.py:metric --epochs=all
  export DIR                the consensus model as safetensors or msgpack
  thin DIR...               small open copies of runs: settings, results, metrics in means of ten lines;
                            --output=FOLDER --every=10
  report DIR...             one HTML page of a run, or of several side by side; --output=FILE.html
  serve DIR                 a local page over all runs of a folder, live while they train; --port=8765
  figure KIND DIR...        curves, compression, zeta, bits, rho, sharpness or partition; --output=FILE.png
  sharpness DIR...          the Hessian's largest eigenvalue at a run's checkpoints; several runs: a picture
  landscape DIR...          the loss around the consensus models of runs, as pictures and a page
  cost                      the paper's communication costs, derived, beside exact bytes; --table=1, --json
  theory [DIR]              the convergence theorem: terms, conditions, --testbed; or how a run stands to it
  plan                      a run's step compiled for devices that need not be there: does it fit, what does
                            it send; --target=a40x4, v5e:2x2 or here, --config.FIELD=VALUE, --json
  bench [CASE ...]          speed as ratios, against PyTorch or a copy; --list, --quick, --json=FILE
  bench input               what gathering and augmenting images costs beside a step
  check THING               which laws hold for a method, ascent, compressor, graph, model, dataset or loss:
                            check mine.py:method, check "qgm(beta=0.5)"; --kind=KIND, --dataset=NAME, --json
  new KIND NAME             NAME.py with a thing of that kind to begin with, and NAME_test.py with its laws
  data list                 which datasets there are, and where
  data prepare NAME         download and prepare one (needs internet and TensorFlow)
  data show NAME            counts, shapes and a contact sheet
  data partition            who would hold what, and a picture of it
  topology NAME AGENTS      the properties of a graph, and its picture: topology torus:5x8 40 --output=a.png
  version                   which saddle_jax this is
"""
