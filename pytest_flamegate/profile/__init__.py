"""Where does the time go? Profilers behind one protocol, and the arithmetic of a profile.

A profiler (``profilers/``) samples a process and parses its own output into a ``Profile`` of
normalised, escaped frames (``model``, ``frames``, which also has the folded notation). ``stacks``
finds where the workload begins, ``hotspots`` ranks the functions, ``difference`` compares two
profiles. ``formats/`` reads and writes profiles of other tools.
"""
