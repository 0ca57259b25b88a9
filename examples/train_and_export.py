"""Train, look at the result, and write the bundle that goes to the robot: half a minute.

python examples/train_and_export.py [iterations]
"""

import sys

import robot_rl as rr

run = rr.train("cartpole", seed=1, max_iterations=int(sys.argv[1]) if len(sys.argv) > 1 else 100)
print(run)
figures = rr.evaluate(run, episodes=20)
print({name: round(value["mean"], 3) for name, value in figures["torch"].items() if value})
print(rr.export(run))
