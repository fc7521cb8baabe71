"""Published data sets as annotated examples in splits.

`source` finds the files, `formats` reads their formats, `write` writes a folder for
`schemax train` and `schemax evaluate`.
"""
