"""The log manager: opens, creates, changes and deletes logs, and runs background tasks."""
