"""A module for each verb of `nsed`."""
