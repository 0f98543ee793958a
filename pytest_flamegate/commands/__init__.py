"""The commands of the terminal.

A module's ``add(subparsers)`` declares the arguments of its command and sets ``run``, a function
from the parsed arguments to an exit code. A module of two commands has a second ``add_NAME``.
"""
