"""Why a robot's log differs from its simulation: wrong wiring, frames, motors, delay, mass."""
