"""Data sets that others have published, as annotated examples in splits.

`source` finds the files, `formats` reads the forms that they come in, `write` writes a folder that
`schemax train` and `schemax evaluate` take.
"""
