"""The command line, robot-rl <command>: one short module a command, each with HELP and run(arguments)."""
