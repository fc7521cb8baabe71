"""Tables in and out: files of records, typed columns, and runs that go on where they stopped.

Nothing here is needed to extract from Python objects. JSON Lines and CSV need no other package;
Parquet, Arrow, .zst and addresses such as s3://... need the extra `tables`.
"""
