"""The APIs of producers' ids and transactions."""
