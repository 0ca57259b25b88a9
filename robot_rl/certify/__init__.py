"""A certificate of a policy: how far each property of robot and ground may be from the model's before it fails."""
