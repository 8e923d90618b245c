"""A finished comparison as a file (JSON, CSV, Parquet, one HTML page), and the strict way back."""
