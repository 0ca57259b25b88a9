"""Cart with a free pole on a rail."""
