"""The method of the paper: record-breaking points, a monotone curve per configuration, envelope, sigmoid of n*."""
