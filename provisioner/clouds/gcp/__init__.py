"""Google Cloud, over REST; google-auth is imported with the first call."""
