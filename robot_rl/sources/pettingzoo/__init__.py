"""Teams of other projects: PettingZoo's parallel environments, and MaMuJoCo's robots divided among agents."""
