"""What can be added to the algorithm: further rewards and losses, a motion prior, curiosity, a reference policy."""
