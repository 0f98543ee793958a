"""Results of other benchmark tools: claims that flamegate did not observe.

They never become receipts, because a receipt states whether a real model ran, on which backend and
with which kernels, and no foreign result states that. Each becomes an ``imported.json`` of grade
SELF_REPORTED. The JSON of a tool is read, which has more digits than its tables, and of llama-bench
the tables too. A new format is one table in ``formats.toml``.
"""
