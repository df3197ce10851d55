"""Reading results: the report page."""
