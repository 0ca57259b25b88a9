"""How fast it is, and why: measurements of steps and updates, and what a GPU will do, found without one."""
