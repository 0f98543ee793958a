"""What to do about a broken rule, by the code of the rule.

A code that is not listed has the remedy of its rulebook.
"""

from collections.abc import Mapping

_DETERMINISM = "Make the engine deterministic (seed, threads), or state deterministic: false."
REMEDIES: Mapping[str, str] = {
    "E_CORRECTED": "Repair the model or the engine instead of correcting its output.",
    "E_DEVICE_IDLE": (
        "Make the workload compute on the GPU. A silent fallback to the CPU looks like this."
    ),
    "E_EXPIRED": "Measure again.",
    "E_FIGURES_CONTRADICT": "Measure again and let one tool write all figures of one run.",
    "E_FROM_THE_FUTURE": "Check the clocks of both machines.",
    "E_GPU_KERNEL_ON_CPU": (
        "State backend cuda if a GPU computed. Otherwise name the kernels that ran."
    ),
    "E_GPU_REQUIRED": "Hand in a receipt of a GPU run, or omit --require-gpu-kernels.",
    "E_HIDDEN_CHARACTER": (
        "Inspect the bytes: the text displays as something other than it contains."
    ),
    "E_KERNELS": "Record the kernel's own name, without its parameters.",
    "E_KERNEL_PATH": "Report the path that ran: native_quantized means that nothing fell back.",
    "E_KERNEL_UNSEEN": (
        "Measure again, and name the kernels that the profile and the engine's reports show."
    ),
    "E_MOCK_KERNEL": "Run real inference. One mock among real kernels is enough to reject the run.",
    "E_NOT_DETERMINISTIC": _DETERMINISM,
    "E_NO_COMPUTE_KERNEL": (
        "Name the kernels that ran, build the quantised ones in, or give --kernel-policy."
    ),
    "E_NO_DEVICE": (
        "Measure on a machine whose GPU works (nvidia-smi, flamegate doctor), or claim cpu."
    ),
    "E_NO_GPU_KERNEL": "Run a GPU build on a GPU. A silent fallback to the CPU looks like this.",
    "E_REPLAY_OF_ANOTHER": "Replay this receipt.",
    "E_REPORT_CONTRADICTION": (
        "Inspect what the engine prints and how it is parsed; it contradicts the observer."
    ),
    "E_RUN_FAILED": (
        "Repair the run or its tests, then measure. A failed run has no performance to claim."
    ),
    "E_TPS": "Check the unit and the clock.",
    "F_INJECTED": "Measure without --flamegate-inject.",
    "F_KERNELS_FROM_ENGINE": "Profile with a profiler that sees native code.",
    "F_MACHINE_BUSY": "Measure on a quieter machine.",
    "F_NOT_DETERMINISTIC": _DETERMINISM,
    "F_NO_COMMIT": "Commit, then measure.",
    "F_NO_PROFILE": "Profile the runs.",
    "F_ONE_PROCESS": "Let flamegate start the server for each run: serve instead of url.",
    "F_PROFILE_DEGRADED": "Read what the profiler reports (flamegate doctor), or set call_graph.",
    "F_SIDE_OF_COMPARISON": "Measure without --flamegate-against.",
    "F_SUSPICIOUS": "Read each suspicion.",
    "F_WHOLE_PROCESS": "Make the program write each token as it is generated.",
    "W_ASLEEP": "Observe the process that computes, not a proxy or a mock in front of it.",
    "W_DETERMINISM_NOT_SHOWN": "Run the workload twice.",
    "W_DEVICE_BUSY": "Profile with a tool that sees GPU kernels, or keep the workload off the GPU.",
    "W_DEVICE_NOT_OBSERVED": (
        "Measure so that the observer sees the GPU: pip install 'pytest-flamegate[gpu]'."
    ),
    "W_DUPLICATE_KERNELS": "None needed: a list of calls repeats names.",
    "W_FASTER_THAN_MEMORY": (
        "None needed for a mixture of experts. Otherwise inspect how the evidence was made."
    ),
    "W_FEW_SAMPLES": "Sample at a lower rate, or with another profiler (flamegate doctor).",
    "W_KERNELS_FROM_ENGINE": "Profile with a profiler that sees native code.",
    "W_METRIC_MISSING": "Measure again; an older version may not have written the metric.",
    "W_MODEL_NOT_HASHED": "Declare the model file of the workload.",
    "W_MODEL_NOT_READ": (
        "None needed if another process serves the model. Otherwise check what was run."
    ),
    "W_NO_PROFILE": "Measure with a profiler, and keep profile.folded next to the receipt.",
    "W_NO_TIMED_RUN": "Measure timed runs.",
    "W_PROFILE_DEGRADED": "Read what the profiler reports (flamegate doctor).",
    "W_RECIPE_INCOMPLETE": "Measure again. A replay needs the command or the target in the recipe.",
    "W_REPLAY_CHANGED": "Replay under the same conditions if the result depends on them.",
    "W_REPLAY_NOT_DETERMINISTIC": _DETERMINISM,
    "W_REPLAY_RATE_UNKNOWN": (
        "Replay on the same class of machine, when it is idle, with more time (--budget)."
    ),
    "W_REPLAY_SLOWER_CLAIM": "Measure again: the claim is too low.",
    "W_TIME_UNACCOUNTED": (
        "Check what the engine does after its last token: no figure per token includes it."
    ),
    "W_WAITS_EXCEED_WALL": "Measure again: such waits would make the quiet clock too fast.",
}
