"""The program `nsed`: verbs, their settings, the server, and doors for other tools."""
