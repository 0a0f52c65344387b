"""Overlays: pure functions that lay made-up telemetry of one cause over a real recording.

Each takes a bundle and a seed and gives a bundle; equal input gives equal output. All of them say
SIMULATED in the notes, set the label to what they did, and mark a GPU's model as simulated.
"""

from diag.simulate.overlays.gateway import gateway_slow
from diag.simulate.overlays.gpus import gpu_calm, gpu_neighbour, gpu_power_brake, gpu_thermal
from diag.simulate.overlays.host import host_leak

__all__ = ["gateway_slow", "gpu_calm", "gpu_neighbour", "gpu_power_brake", "gpu_thermal", "host_leak"]
