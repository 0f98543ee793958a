"""Where does the time go? Profilers behind one protocol, and the arithmetic of a profile.

A profiler (``profilers/``) samples a process and parses its own output into a ``Profile`` of
normalised, escaped frames (``model``, ``frames``). ``folded`` writes the stacks down, ``hotspots``
ranks the functions, ``difference`` compares two profiles, ``decode`` separates decode from prefill.
``formats/`` reads and writes profiles of other tools. Import names from the module that defines
them: this package imports nothing by itself.
"""
