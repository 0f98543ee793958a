"""The commands of the terminal.

``commands.toml`` declares the arguments of each command and names the function that runs it
(``place``). That function takes the parsed arguments and returns an exit code.
"""
