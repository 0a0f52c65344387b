"""How hot or how short of power a card has to be to end up at a given clock.

The relations are those of ``diag.simulate.gpu``: power grows with the clock to the power of 2.4, heat with
power, and above a threshold the clock sinks with temperature.
"""

from __future__ import annotations

from diag.simulate.gpu import H200
from diag.simulate.plan import Machine

__all__ = ["busy_watts", "limit_for", "resistance_for"]

_CLOCK_EXPONENT = 2.4
_THRESHOLD_CELSIUS = H200.slowdown_celsius - 4.0
_KELVIN_PER_CLOCK = 8.0


def busy_watts(machine: Machine, clock_ratio: float) -> float:
    """Watts of a card that works without a break at that share of its maximum clock."""
    full = machine.full_watts_share * H200.limit_watts
    watts: float = (full - H200.idle_watts) * clock_ratio**_CLOCK_EXPONENT
    return H200.idle_watts + watts


def resistance_for(machine: Machine, clock_ratio: float, air_celsius: float = 27.0) -> float:
    """The thermal resistance, in multiples of a healthy card's, that holds a busy card at ``clock_ratio``."""
    celsius = _THRESHOLD_CELSIUS + _KELVIN_PER_CLOCK * (1.0 - clock_ratio)
    return (celsius - air_celsius) / (H200.kelvin_per_watt * busy_watts(machine, clock_ratio))


def limit_for(machine: Machine, clock_ratio: float) -> float:
    """The enforced power limit, of the default one, that holds a busy card at ``clock_ratio``."""
    return busy_watts(machine, clock_ratio) / H200.limit_watts
