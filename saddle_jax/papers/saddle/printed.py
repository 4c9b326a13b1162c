"""Numbers printed in the SADDLe paper: hyper-parameters, averaging rates, and tables of accuracies.

A line is: agents, method, compressor, then one result per column, in percent: mean±standard deviation over
three seeds; only a mean where the paper gives no deviation; a star where one of three runs diverged.
"""

from typing import NamedTuple

from saddle_jax.papers.tables import Hyperparameters

# Learning rate, rho, epochs, batch size, model, training images.
SETTINGS = {
    "cifar10": Hyperparameters(0.1, 0.1, 200, 32, "resnet20", 50_000),
    "cifar100": Hyperparameters(0.1, 0.05, 100, 20, "resnet20", 50_000),
    "imagenette": Hyperparameters(0.01, 0.01, 100, 32, "mobilenet_v2", 9_469),
    "imagenet": Hyperparameters(0.01, 0.05, 60, 64, "resnet18", 1_281_167, schedule="imagenet"),
}


class AveragingRates(NamedTuple):
    """The averaging rates gamma of NGM and N-SADDLe on one problem (the paper's second table)."""

    plain: float  # of both methods, uncompressed
    ngm: float  # compressed
    n_saddle: float  # compressed


_RATES: dict[tuple[str, float | None], AveragingRates] = {
    ("cifar10", 0.01): AveragingRates(1.0, 0.5, 0.5),
    ("cifar10", 0.001): AveragingRates(1.0, 0.5, 0.5),
    ("cifar100", 0.01): AveragingRates(1.0, 0.5, 0.5),
    ("cifar100", 0.001): AveragingRates(1.0, 0.5, 0.5),
    ("imagenette", 0.01): AveragingRates(0.5, 0.1, 0.1),
    ("imagenette", 0.001): AveragingRates(0.5, 0.5, 0.5),
    ("imagenet", 0.01): AveragingRates(1.0, 0.5, 1.0),
    ("imagenet", 0.001): AveragingRates(1.0, 0.5, 1.0),
}


def averaging_rate(method: str, compressor: str, dataset: str, alpha: float | None) -> float:
    """Returns gamma as the paper tuned it; top-30 % (0.4) and the torus (0.5) have their own."""
    if method not in ("ngm", "n_saddle"):
        return 1.0
    rates = _RATES[dataset, alpha]
    if compressor == "none":
        return rates.plain
    return rates.ngm if method == "ngm" else rates.n_saddle


# Columns: CIFAR-10 alpha 0.01, 0.001, CIFAR-100 alpha 0.01, 0.001.
QGM_CIFAR = """
 5  qgm       none         88.44±0.39  88.72±0.64  56.84±2.01  59.58±1.22
 5  qgm       quantize(8)  86.85±0.73  86.82±0.99  48.80±8.58  51.99±4.23
 5  q_saddle  none         90.66±0.08  90.56±0.33  61.96±1.00  61.64±0.70
 5  q_saddle  quantize(8)  89.70±0.15  90.02±0.08  60.11±0.99  60.53±0.25
10  qgm       none         77.41±8.00  79.48±2.76  48.06±4.36  44.16±6.71
10  qgm       quantize(8)  76.59±5.95  73.03±4.63  46.14±6.88  43.00±6.55
10  q_saddle  none         87.72±1.59  86.33±0.24  58.06±0.68  56.76±0.86
10  q_saddle  quantize(8)  87.82±1.42  85.57±1.33  57.90±0.82  56.27±0.84
20  qgm       none         72.20±0.77  62.48±8.56  45.23±3.26  44.48±4.53
20  qgm       quantize(8)  66.61±6.68  60.30±6.60  43.64±3.68  42.75±1.82
20  q_saddle  none         78.41±2.13  82.81±0.89  52.59±0.48  48.20±0.93
20  q_saddle  quantize(8)  80.80±2.20  82.18±0.56  52.64±1.09  48.00±0.85
40  qgm       none         70.46±4.14  60.86±0.98  40.15±0.90  38.73±1.47
40  qgm       quantize(8)  67.81±2.62  57.01±1.88  35.36±1.50  36.04±1.31
40  q_saddle  none         77.49±0.83  73.54±2.04  43.25±1.71  41.99±1.27
40  q_saddle  quantize(8)  76.35±0.42  72.03±2.12  41.75±2.14  41.03±0.67
"""

# Columns: Imagenette alpha 0.01, 0.001.
QGM_IMAGENETTE = """
 5  qgm       none          64.25±11.53  57.67±6.32
 5  qgm       quantize(10)  59.86±17.05  50.14±9.39
 5  q_saddle  none          73.34±0.80   72.50±0.21
 5  q_saddle  quantize(10)  72.64±1.66   72.77±0.43
10  qgm       none          56.30±4.03   45.82±5.99
10  qgm       quantize(10)  53.50±5.66   36.71±3.65
10  q_saddle  none          62.35±3.64   63.18±1.59
10  q_saddle  quantize(10)  63.35±2.61   61.14±0.71
"""

# Columns: CIFAR-10 alpha 0.01, 0.001, CIFAR-100 alpha 0.01, 0.001.
NGM_CIFAR = """
 5  ngm       none  90.87±0.39   90.73±0.46  59.00±4.26  54.78±4.68
 5  ngm       sign  89.50±0.68   87.69±1.98  56.91±1.82  50.65±2.67
 5  n_saddle  none  91.96±0.19   91.69±0.15  63.87±0.45  64.10±0.48
 5  n_saddle  sign  91.88±0.36   91.77±0.19  62.35±0.87  62.43±0.36
10  ngm       none  85.08±2.73   83.43±0.95  55.2±1.41   54.70±1.36
10  ngm       sign  76.85±15.10  76.67±3.67  43.41±4.50  43.17±4.65
10  n_saddle  none  88.43±1.38   87.29±1.23  59.31±0.61  58.37±0.30
10  n_saddle  sign  88.11±1.54   87.14±1.45  58.39±0.89  58.33±0.45
20  ngm       none  84.84±0.43   83.58±0.89  53.98±0.31  53.37±0.53
20  ngm       sign  83.91±0.96   78.90±0.11  50.07±2.79  46.73±4.35
20  n_saddle  none  86.26±0.29   86.61±0.20  55.77±0.53  55.14±0.49
20  n_saddle  sign  86.34±0.24   87.41±0.52  56.65±0.17  55.11±1.16
"""

# Columns: Imagenette alpha 0.01, 0.001, ImageNet alpha 0.01, 0.001.
NGM_IMAGENET = """
10  ngm       none  67.68±1.23  67.10±0.71  49.30  46.38
10  ngm       sign  63.65±2.70  63.70±0.87  34.66  34.40
10  n_saddle  none  69.54±0.33  68.70±0.79  52.20  51.94
10  n_saddle  sign  68.09±0.57  67.37±0.68  51.44  49.61
"""

# Column: CIFAR-10 alpha 0.001, on a torus.
TORUS = """
40  qgm       none         57.96±3.90
40  qgm       quantize(8)  47.08±7.72
40  q_saddle  none         70.05±3.35
40  q_saddle  quantize(8)  65.84±2.46
40  ngm       none         86.00±0.34
40  ngm       sign         86.30±0.52
40  n_saddle  none         86.67±0.32
40  n_saddle  sign         87.00±0.18
"""

# Columns: CIFAR-10 alpha 0.01, 0.001; the ascent in every fifth step.
EFFICIENT = """
10  q_saddle  none         85.50±0.26  84.27±0.15
10  q_saddle  quantize(8)  84.79±0.34  84.61±0.23
20  q_saddle  none         82.77±1.38  80.07±1.34
20  q_saddle  quantize(8)  82.41±0.86  80.14±1.67
"""

# Columns: CIFAR-10 alpha 0.01, 0.001, CIFAR-100 alpha 0.01, 0.001.
DPSGD = """
 5  dpsgd     none  82.15±3.25   80.54±4.36  47.30±4.92  45.54±0.71
 5  d_saddle  none  85.38±0.84   84.94±0.31  54.35±0.48  54.30±0.50
10  dpsgd     none  49.17±17.38  40.74±2.62  31.66±0.84  29.79±1.30
10  d_saddle  none  64.18±5.63   61.30±0.79  37.49±0.59  35.31±0.77
20  dpsgd     none  40.49±3.06   36.13±5.67  24.45±0.51  21.58±1.00
20  d_saddle  none  52.14±2.02   47.06±2.35  26.39±0.17  24.92±0.62
"""

# Columns: CIFAR-10, CIFAR-100, both with an IID partition.
DPSGD_IID = """
 5  dpsgd  none  91.05±0.06  64.47±0.48
10  dpsgd  none  90.46±0.33  62.73±1.03
20  dpsgd  none  89.46±0.02  59.61±1.15
"""

# Columns: CIFAR-10 alpha 0.01, 0.001.
TOP_K = """
 5  qgm       top_k(0.3)  83.58±2.96  67.04±9.76
 5  q_saddle  top_k(0.3)  90.01±0.38  89.49±0.38
10  qgm       top_k(0.3)  52.23*      23.00±1.96
10  q_saddle  top_k(0.3)  80.34±5.56  71.01±3.75
20  qgm       top_k(0.3)  62.90±5.89  32.92±9.25
20  q_saddle  top_k(0.3)  71.96±2.51  64.31±2.14
"""

# The Drop columns beside them, in percentage points from the uncompressed accuracies of Table 1. One of them,
# 1.18, is not their difference (90.56 - 89.49): docs/errata.md.
TOP_K_DROPS = """
 5  qgm       top_k(0.3)  4.86  21.68
 5  q_saddle  top_k(0.3)  0.65   1.18
10  qgm       top_k(0.3)  25.18  56.48
10  q_saddle  top_k(0.3)  7.38  15.32
20  qgm       top_k(0.3)  9.3   29.56
20  q_saddle  top_k(0.3)  6.45  18.50
"""

# Columns: CIFAR-10 alpha 0.01, 0.001. With error feedback the unbiased operator grows without bound at
# two bits, so the biased one must be meant.
TWO_BIT = """
 5  ngm       quantize(2, biased=True)  87.38±2.01  87.27±0.56
 5  n_saddle  quantize(2, biased=True)  91.35±0.17  91.18±0.25
10  ngm       quantize(2, biased=True)  79.89±8.74  79.20±3.05
10  n_saddle  quantize(2, biased=True)  87.25±1.65  85.70±1.15
20  ngm       quantize(2, biased=True)  81.87±1.17  76.68±0.95
20  n_saddle  quantize(2, biased=True)  84.25±0.17  85.09±0.31
"""

# The Drop columns beside them, from the uncompressed accuracies of Table 3.
TWO_BIT_DROPS = """
 5  ngm       quantize(2, biased=True)  3.49  3.46
 5  n_saddle  quantize(2, biased=True)  0.61  0.51
10  ngm       quantize(2, biased=True)  5.19  4.23
10  n_saddle  quantize(2, biased=True)  1.18  1.59
20  ngm       quantize(2, biased=True)  2.97  6.90
20  n_saddle  quantize(2, biased=True)  2.01  1.52
"""
