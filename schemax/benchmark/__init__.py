"""Speed beside other ways to do the same work: in one process, on one model, token for token."""
