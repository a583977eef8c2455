"""The `logstore workload` commands: generate, verify, and run."""
