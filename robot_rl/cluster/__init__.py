"""The cluster: code to start the processes of runs there, write documents for it, check it and measure it."""
