"""What a fitted surface is asked for: curves, best group sizes and their odds, differences, a law, a passport."""
