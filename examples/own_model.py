"""A model of your own: any flax module, trained by ten agents on the embedded digits."""

import flax.linen as nn
import jax

import saddle_jax as sj
from saddle_jax import data, models
from saddle_jax.training import classification, named_objectives, objectives


class Maxout(nn.Module):
    """One hidden layer of units that pass on the largest of three numbers (Goodfellow et al., 2013)."""

    @nn.compact
    def __call__(self, images):  # [B, H, W, C] of one agent: no agent axis appears here
        pieces = nn.Dense(3 * 64)(images.reshape(images.shape[0], -1))
        return nn.Dense(10)(pieces.reshape(-1, 64, 3).max(axis=-1))


model, digits = Maxout(), data.load("digits")
partition = data.make_partition("dirichlet", digits.train["targets"], 10, alpha=0.1, seed=0)
batches = data.Batches(partition, batch_size=32, seed=0)
method = sj.q_saddle(sj.ring(10), learning_rate=0.1, rho=0.05)
params = sj.replicate(models.init(model, digits.input_shape, jax.random.key(0)), 10)  # leaves [A, ...]
state, loss_fn = method.init(params), classification.cross_entropy(model)
step = jax.jit(method.step, static_argnums=0)

for t in range(40):
    samples, mask = batches.step(*divmod(t, batches.steps_per_epoch))  # [A, B]
    images = digits.recipe.for_evaluation(data.take(digits.train["inputs"], samples))
    batch = {"inputs": images, "targets": digits.train["targets"][samples], "mask": mask}
    params, state, metrics = step(loss_fn, params, state, batch)

objective = named_objectives.make("classification", models.functions(model))
score = objectives.evaluate(objective, sj.consensus(params), digits.test, digits.recipe)
print(f"{partition.skew}\ntest accuracy of the consensus model: {100 * score['accuracy']:.1f} %")
