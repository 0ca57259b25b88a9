"""Records of worlds that failed: a ring of their last moments on the device, and the files written from it."""
