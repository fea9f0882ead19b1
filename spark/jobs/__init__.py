"""The jobs, one module each: a function from rows of the log to a small table, and its description.

A job of your own is a module with a `JOB` in it; `--jobs rates,mypackage.myjob` runs it.
"""
