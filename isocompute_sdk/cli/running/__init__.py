"""Commands around runs that train: preparing, carrying out, watching, scoring."""
