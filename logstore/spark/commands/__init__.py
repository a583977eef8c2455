"""`logstore workload`: generate; verify; and run, which generates, cleans and verifies."""
