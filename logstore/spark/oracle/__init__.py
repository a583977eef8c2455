"""The oracle: was a cleaning right? Written from the rules, not from the cleaner."""
