"""Reads and writes files of records and tables with typed columns, in runs that can be resumed.

Extraction from Python objects requires none of this. JSON Lines and CSV require no other package;
Parquet, Arrow, .zst and addresses such as s3://... require the extra `tables`.
"""
