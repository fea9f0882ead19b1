"""The gateway's web server: a page that shows what happens, and the API that feeds it.

`pulse` counts what the gateway itself knows, `tables` and `queries` hold what Spark tells,
`board` puts them together, `readers` tells browsers, `site` answers requests, `assets` has the
page's files.
"""
