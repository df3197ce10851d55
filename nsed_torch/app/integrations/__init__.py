"""Teams for other people's tools."""
