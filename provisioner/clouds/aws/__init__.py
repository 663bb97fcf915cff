"""EC2 through boto3: the same interface as the sandbox, one file a concern, foreign errors mapped by one table."""
