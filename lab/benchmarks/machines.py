"""What passes take on machines that were measured, in milliseconds, by the pair of models.

Names say the processor, then the main model, then the draft's parameters. Passes of another size
than the last one take `change` longer.
"""

from ov_specdec.planning.costs import NOMINAL, CostCurve, PassCurve

AVX512_1B = PassCurve({1: 26.0, 2: 26.0, 5: 32.0, 9: 41.0, 16: 57.0}, 4.3)
VNNI_1B = PassCurve({1: 27.0, 2: 28.0, 8: 46.5, 10: 54.7, 12: 60.7, 16: 73.0}, 4.5)
TINY_DRAFT = PassCurve({1: 0.3, 2: 0.35}, 0.1)
DRAFT_100M = PassCurve({1: 2.7, 2: 2.8}, 0.6)

MACHINES = {
    "avx512 1B 3M": CostCurve(AVX512_1B, TINY_DRAFT),
    "avx512 1B 100M": CostCurve(AVX512_1B, DRAFT_100M),
    "vnni 1B 3M": CostCurve(VNNI_1B, TINY_DRAFT),
    "vnni 1B 100M": CostCurve(VNNI_1B, DRAFT_100M),
    "avx512 embedded": CostCurve(
        PassCurve({1: 2.3, 2: 2.6, 4: 2.75, 6: 2.95, 8: 3.15, 12: 3.6, 16: 4.0}, 1.7),
        PassCurve({1: 0.21, 2: 0.25}, 0.05),
    ),
    "avx512 SmolLM2": CostCurve(
        PassCurve({1: 8.4, 2: 8.5, 3: 9.0, 5: 9.3, 9: 11.3, 16: 15.0}, 4.2)
    ),
    "nominal": NOMINAL,
}
