"""The consensus model on a whole test set, in PyTorch."""

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from benchmarks.baselines.pytorch.models import NETWORKS, Layout, Tensor
from saddle_jax.data.recipes import Recipe


@torch.inference_mode()
def evaluate(
    model: str,
    layout: Layout,
    models: Tensor,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    batch_size: int = 500,
) -> dict[str, float]:
    """Computes accuracy and mean loss of the average of models [A, P] on uint8 images [N, C, H, W]."""
    parameters = layout.tensors(models.mean(0))
    mean, std = (torch.tensor(values)[:, None, None] for values in (recipe.mean, recipe.std))
    hits, loss = 0, 0.0
    for chunk, chunk_labels in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        logits = NETWORKS[model](parameters, (chunk / 255 - mean) / std)
        hits += int((logits.argmax(1) == chunk_labels).sum())
        loss += float(F.cross_entropy(logits, chunk_labels, reduction="sum"))
    return {"accuracy": hits / len(labels), "loss": loss / len(labels)}
