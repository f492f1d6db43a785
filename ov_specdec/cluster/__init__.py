"""The server on several replicas, which Ray Serve starts, monitors and scales.

Needs the extra `[cluster]`. One application: an ingress with the routes of `ov_specdec.server`, and
replicas that run generations for it.
"""
