"""The Unitree G1, a humanoid with 29 joints."""
