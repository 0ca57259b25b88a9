"""Many runs on a page of this machine's browser: a table, groups over seeds, curves."""
