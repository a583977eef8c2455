"""`logstore workload`: generate, verify, and run, which does both and cleans between them."""
