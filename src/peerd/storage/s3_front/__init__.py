"""S3 at the storage server: requests of unmodified clients, verified, permitted, and done."""
