"""The state of requests and of their slots: tables of arrays, free of attention and of models."""
