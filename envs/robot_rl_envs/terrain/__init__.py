"""The ground that robots walk on: tiles of rising difficulty in one height map."""
