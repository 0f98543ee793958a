"""What do the engine's own clocks say? Marks in an engine, and what is made of them.

An engine marks its parts as *bricks*; while a profiler is on each call is clocked, and while
none is on a mark costs next to nothing and reads no clock.
"""
