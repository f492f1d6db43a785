"""The server on several replicas of the models, which Ray Serve starts, watches and scales.

Needs the extra `[cluster]`. One application: an ingress with the routes of `ov_specdec.server`, and
replicas that run generations for it.
"""
