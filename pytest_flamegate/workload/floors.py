"""How much has to be measured before anything is judged by it."""

from __future__ import annotations

MIN_PROCESSES = 3
"""Fewer independent processes than this give no interval worth the name."""
SAMPLE_FLOOR = 200
"""Fewer samples than this name no hotspot: the share of one of 50 % would be off by 7 points."""
STACK_FLOOR = 0.5
"""Where fewer stacks come by the workload, the profile is mostly of something else."""
MAX_CPU_PRESSURE_PCT = 50.0
"""Above this the CPUs were contended; measured spread of fresh processes doubles there."""
MAX_WAITING = 0.25
"""Beyond this part of its time spent waiting for a CPU, a process tells the machine's load."""
MIN_BRICK_PASSES = 5
"""Fewer processes whose bricks were clocked hold no brick to its budget."""
MIN_BRICK_COVERAGE = 0.5
"""Where the marks cover less of the wall time, they tell nothing of what a token costs."""
