"""An entity of a scene: its part of the model, its state, the values derived from it, its sensors."""
