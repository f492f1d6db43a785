"""The deployment that clients reach: the server's own routes, over replicas."""

from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from ov_specdec.cluster.remote import RemoteEngine
from ov_specdec.server.app import make_app
from ov_specdec.server.logs import set_up_log
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings


@serve.ingress()
class Ingress:
    """Reads requests, checks keys, admits, and writes answers. replicas: generate them."""

    def __init__(self, replicas: DeploymentHandle[Any], settings: Settings, log_level: str) -> None:
        set_up_log(log_level)
        self._replicas = replicas
        self._service = Service(settings)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """The application, once a replica has loaded the models."""
        info = await self._replicas.describe.remote()
        self._service.take(RemoteEngine(self._replicas, info))
        return make_app(self._service)
