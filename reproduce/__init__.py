"""Tables and figures of the HPD paper, made again: README.md says how."""
