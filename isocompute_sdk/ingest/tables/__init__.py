"""Tables: CSV, JSON lines, Parquet and CSV exports of Weights & Biases, as columns with the place of each row."""
