"""Run llama.cpp's HTTP server out of xllamacpp: ``python engine_server.py MODEL PORT``.

It ends by itself after a while, whatever becomes of the benchmark.
"""

import importlib
import sys
import time

LIVES_S = 600

if __name__ == "__main__":
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.port = sys.argv[1], int(sys.argv[2])
    params.n_parallel, params.n_ctx, params.warmup = 1, 1024, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    # As the engine `llama-cpp` sets them, which has no slow processes: see docs/gate.md.
    params.fit_params, params.cache_ram_mib, params.n_ctx_checkpoints = False, 0, 0
    params.n_threads_http = 1
    server = xllamacpp.Server(params)
    time.sleep(LIVES_S)
