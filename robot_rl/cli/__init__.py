"""The command line, robot-rl <command>: a short module for each, its docstring the help, with run(arguments)."""
