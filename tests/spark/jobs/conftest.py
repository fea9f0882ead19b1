"""Python code of jobs runs in the Python that runs the tests, not in the first of the path."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
