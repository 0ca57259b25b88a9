"""What a GPU will do, found on a machine that has none: its kernels compiled, their resources counted."""
