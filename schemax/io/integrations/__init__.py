"""schemax where the rows are: one module an engine, for what a script cannot do in a few lines."""
