"""The cluster: what starts the processes of runs there, what is written for it, checked on it and measured of it."""
