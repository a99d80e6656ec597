"""What a broker reports over HTTP: metrics in Prometheus' text format, liveness and readiness.

Counters are plain integers in the objects they count, and are read on request. Nothing here is loaded unless
metrics.listener is set.
"""
