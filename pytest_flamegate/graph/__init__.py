"""Execution graphs and their critical paths; tables, rooflines and tensors of bricks."""
