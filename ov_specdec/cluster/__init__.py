"""The server on several replicas, which Ray Serve starts, monitors and scales: extra `cluster`."""
