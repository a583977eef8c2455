"""Opening one partition: finish or undo what a crash left, mend damage, rebuild indexes."""
