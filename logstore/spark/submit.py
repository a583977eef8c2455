"""`logstore workload` as a cluster job.

    job="spark-submit --master spark://HOST:7077 logstore/spark/submit.py"
    $job generate user-accounts --data-dir /shared/before
    $job verify --before /shared/before --after /shared/after

Options and exit codes are as on the command line. Directories must be on a file system that all
nodes mount at the same path. The workers' Python requires this package and its dependencies, either
installed or as a checkout on that file system.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # The first path entry is the directory of this script, whose modules are not top-level modules.
    # Replace it with the directory that contains the package.
    above = Path(__file__).resolve().parents
    sys.path[0] = str(next(path for path in above if (path / "logstore" / "errors.py").exists()))
    from logstore.cli.main import main

    main(["workload", *sys.argv[1:]], prog_name="logstore")
