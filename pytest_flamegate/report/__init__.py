"""Reports for people: flame graphs, pages, terminal text and CI annotations.

Every figure comes from the verdict, the receipt, the evidence or the profile: nothing is judged or
measured here. ``sections`` is the model; ``terminal``, ``markdown`` and ``page`` render it.
"""
