"""The library of terms: rewards, observations, terminations, commands, events, metrics."""
