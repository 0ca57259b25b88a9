"""The scripts of benchmarks/ are imported by their file names, as they import each other."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
