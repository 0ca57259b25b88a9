"""The report of a run as a page, and the plots of every command."""
