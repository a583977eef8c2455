"""Simulate months of appends, retention and cleaning in virtual time."""

from logstore.simulate.engine import run
from logstore.simulate.fitting import fit
from logstore.simulate.outcome import Run
from logstore.simulate.scenario import Scenario, parse

__all__ = ["Run", "Scenario", "fit", "parse", "run"]
