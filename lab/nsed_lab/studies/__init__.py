"""What runs a study, stores what it came to, and works its numbers out anew."""
