"""The commands of `logstore workload` as a job for a cluster.

    job="spark-submit --master spark://HOST:7077 logstore/spark/submit.py"
    $job generate user-accounts --data-dir /shared/before
    $job verify --before /shared/before --after /shared/after

Options and exit codes are those of the commands. Directories have the same path on every node; a
shared file system sees to that. The workers' Python needs this package and what it depends on:
installed, or a checkout on that file system.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # A script's own folder comes first on the path; modules here are not meant to go by their
    # bare names. In its place comes what holds the package, be it a checkout or an installation.
    above = Path(__file__).resolve().parents
    sys.path[0] = str(next(path for path in above if (path / "logstore" / "errors.py").exists()))
    from logstore.cli.main import main

    main(["workload", *sys.argv[1:]], prog_name="logstore")
