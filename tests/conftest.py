"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine takes its time over an example; that is no defect of what is tested.
settings.register_profile("flamegate", settings(deadline=None))
settings.load_profile("flamegate")
