"""An entity of a scene: its part of the model, its state, what is derived from it, its sensors."""
