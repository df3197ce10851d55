"""What `nsed bench target=engine` measures, and the plain ways it is measured against."""
