"""A module like xllamacpp that computes nothing and prints: its answers are always the same."""

from __future__ import annotations

TALKS = """\
__version__ = "1"
BUILD_INFO = {"build_number": 1, "commit": "c", "compiler": "C", "build_target": "T"}
def get_system_info():
    return "CPU"
class Params:
    def __init__(self):
        self.model = Params.__new__(Params)
        self.cpuparams = Params.__new__(Params)
        self.cpuparams_batch = Params.__new__(Params)
CommonParams = Params
class Server:
    def __init__(self, params):
        print("loaded", params.model.path)
    def handle_completions(self, request, callback):
        for made in (1, 2):
            print("token", made, flush=True)
            callback(chunk(str(made), made, None))
        DIES
        callback(chunk("", 2, "length"))
def chunk(text, made, finish):
    timings = {"prompt_n": 5, "prompt_ms": 1.0, "predicted_n": made, "predicted_ms": 1.0}
    return {"choices": [{"text": text, "finish_reason": finish}], "timings": timings}
"""
