"""Data of your own: arrays partitioned by label, or a list of arrays that is divided among agents already."""

import numpy as np

import saddle_jax as sj

random = np.random.default_rng(0)
labels = random.integers(0, 3, size=1200)  # three clusters in the plane
points = np.array([[0.0, 2.0], [-2.0, -1.0], [2.0, -1.0]])[labels] + random.normal(size=(1200, 2))
train, test = (points[:1000], labels[:1000]), (points[1000:], labels[1000:])
# Eight agents of which each has one cluster alone, and another number of samples:
owned = [
    (points[:1000][labels[:1000] == n % 3][: 100 + 10 * n], np.full(100 + 10 * n, n % 3)) for n in range(8)
]

tasks = {
    "partitioned": {"train": train, "partition": "dirichlet(0.1)"},
    "divided": {"train": owned},
}
for name, task in tasks.items():
    run = sj.Experiment(sj.qgm(sj.ring(8), 0.05), **task, test=test, epochs=20, workdir=f"runs/own/{name}")
    result = run.train(quiet=True)
    print(f"{name}: the consensus model tells {100 * result['test_accuracy']:.1f} % of the points apart")
