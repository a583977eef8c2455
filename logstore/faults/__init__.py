"""Faults on demand: rules that refuse, delay and lose what a broker is asked, and its disk."""
