"""Is it worse? Pure rules: numbers in, a frozen and complete verdict with its reasons out.

No clock, file, process or environment is read here, so every rule is a table in a test. `judge`
goes from the evidence of a run and its baseline to a `Verdict`; `headline` puts one into a
sentence and `verdict_document` into JSON. `last_analysis` says while pairs are measured whether
they suffice. `machine_id` names the class of machine that a baseline belongs to.
"""
