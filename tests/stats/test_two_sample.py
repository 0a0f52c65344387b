"""Against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp, spearmanr

from diag.stats.two_sample import kolmogorov, spearman


@pytest.mark.parametrize("seed", range(5))
def test_kolmogorov_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=40).round(1), rng.normal(0.5, 2, size=25).round(1)
    assert kolmogorov(a, b) == pytest.approx(ks_2samp(a, b).statistic)


@pytest.mark.parametrize("seed", range(5))
def test_spearman_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=50).round(1)
    y = x + rng.normal(size=50)
    assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)


def test_what_never_moves_agrees_with_nothing() -> None:
    assert spearman(np.ones(20), np.arange(20.0)) == 0.0
    assert kolmogorov(np.empty(0), np.ones(3)) == 0.0
