"""Methods without memory against their NumPy twins, which are one line each: 1e-12 in float64."""
# ruff: noqa: N803 (W is the papers' name)

import numpy as np
import pytest
from problem import IRREGULAR, Problem, run

import saddle_jax as sj

ETA = 0.1
# options: their step from all models x and gradients g, both [A, n], with the matrix W [A, A].
STEPS = {
    "dpsgd": ({"beta": 0.0, "weight_decay": 0.0}, lambda W, x, g, eta: W @ (x - eta * g)),
    "dpsgd awc": ({"beta": 0.0, "weight_decay": 0.0, "variant": "awc"}, lambda W, x, g, eta: W @ x - eta * g),
}


def flat(model):
    return np.concatenate([tensor.ravel() for tensor in model])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", STEPS)
def test_each_step_is_the_formula(case):
    options, step = STEPS[case]
    problem = Problem(IRREGULAR.size)
    method = sj.METHODS[case.split()[0]](IRREGULAR, ETA, **options)
    history, _, _ = run(method, problem)
    x = np.stack([flat(model) for model in problem.start])
    for t in range(problem.steps):
        g = [flat(problem.gradient(i, [row[:2], row[2:].reshape(3, 2)], t)) for i, row in enumerate(x)]
        x = step(IRREGULAR.mixing, x, np.stack(g), ETA)
        ours = np.concatenate([history["b"][t], history["w"][t].reshape(len(x), -1)], axis=1)
        np.testing.assert_allclose(ours, x, rtol=0, atol=1e-12, err_msg=f"step {t}")
