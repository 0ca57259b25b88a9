"""What runs in a rival's own virtual environment: plain programs that import each other by file name, not robot_rl."""
