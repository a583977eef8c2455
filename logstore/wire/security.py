"""The APIs of authentication and of access control lists."""
