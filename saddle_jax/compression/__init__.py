"""Compression operators Q: pure functions of one tensor, their packed encodings and their cost."""

from saddle_jax.compression.base import Compressor as Compressor
from saddle_jax.compression.base import Payload as Payload
from saddle_jax.compression.base import identity as identity
from saddle_jax.compression.quantization import quantize as quantize
from saddle_jax.compression.signs import sign as sign
from saddle_jax.compression.sparsification import random_k as random_k
from saddle_jax.compression.sparsification import top_k as top_k
