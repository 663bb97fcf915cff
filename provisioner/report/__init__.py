"""Plans for people: tables and HTML."""
