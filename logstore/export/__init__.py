"""Exports of records to Parquet, Arrow, CSV and JSON lines."""
