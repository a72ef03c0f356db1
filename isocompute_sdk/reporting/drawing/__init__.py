"""The report as one HTML file: charts, colours, template, style and scripts."""
