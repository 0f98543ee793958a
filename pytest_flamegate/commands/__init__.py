"""The commands of the terminal.

A module's ``declare(parser)`` declares the arguments of its command and sets ``run``, a function
from the parsed arguments to an exit code. A module of several has a ``declare_NAME`` for each.
"""
