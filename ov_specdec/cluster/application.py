"""The application that Ray Serve runs: for `serve deploy`, and for `ov-specdec serve`."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from ov_specdec.cluster.cpus import largest_size, read_cores
from ov_specdec.cluster.remote import RemoteEngine
from ov_specdec.cluster.replica import Replica
from ov_specdec.cluster.router import SessionRouter
from ov_specdec.errors import Option, OptionError
from ov_specdec.generation.pipeline_options import PipelineOptions
from ov_specdec.options.checks import require_known
from ov_specdec.server.app import make_app
from ov_specdec.server.logs import set_up_log
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings

TARGET = 0.8
"""Autoscaling's target use of the batch: Ray advises 20 to 50 % headroom."""

MAX_REQUESTS = 10_000
"""Concurrent requests to the ingress, which itself rejects excess ones with 429, and to a replica,
which queues them."""

CONSTRUCTOR_RETRIES = 2
"""Starts to try: a missing model will not appear, but a replica may release its CPUs late."""


class ClusterArgs(BaseModel):
    """The arguments of the application; `args` in a `serve.yaml`.

    replicas: their number, unless autoscale gives a range; its default target is `TARGET`.
    pipeline: arguments of `SpeculativePipeline`; num_threads is also the number of CPUs of each
    replica, by default an equal share of this machine. settings: those of `Settings`. log_level: of
    the ingress.
    """

    model_config = ConfigDict(extra="forbid")

    replicas: int = Field(1, ge=1)
    autoscale: AutoscalingConfig | None = None
    pipeline: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict, repr=False)  # may contain API keys
    log_level: str = "info"

    @property
    def max_replicas(self) -> int:
        """Maximum number of replicas."""
        return self.autoscale.max_replicas if self.autoscale else self.replicas

    @property
    def batch_size(self) -> int:
        """Concurrent sequences of a replica."""
        return int(self.pipeline.get("max_batch_size", Settings().max_batch_size))

    def all_settings(self) -> Settings:
        """The settings of the ingress, which admits as many sequences as all replicas can run.

        Raises `OptionError` for an unknown or invalid setting.
        """
        if "max_batch_size" in self.settings:
            raise OptionError(
                Option("max_batch_size", self.settings["max_batch_size"]),
                " is an argument of the pipeline, not a setting: put it under pipeline",
            )
        settings = {**self.settings, "max_batch_size": self.batch_size * self.max_replicas}
        return Settings(**settings)


@serve.ingress()
class Ingress:
    """The deployment that clients reach: the server's own routes, over replicas.

    It reads requests, checks keys, admits, and writes answers.
    """

    def __init__(self, replicas: DeploymentHandle[Any], settings: Settings, log_level: str) -> None:
        set_up_log(log_level)
        self._replicas = replicas
        self._service = Service(settings)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """The application, once a replica has loaded the models."""
        described = await self._replicas.describe.remote()
        self._service.take(RemoteEngine(self._replicas, *described))
        return make_app(self._service)


def build(args: ClusterArgs) -> Application:
    """The application: an ingress in front of replicas.

    Raises `OptionError` for unknown pipeline arguments and settings.
    """
    require_known(args.pipeline, PipelineOptions.model_fields, "pipeline argument")
    batch_size, settings = args.batch_size, args.all_settings()
    num_cpus = args.pipeline.get("num_threads") or largest_size(read_cores(), args.max_replicas)
    autoscaling = args.autoscale
    if autoscaling and "target_ongoing_requests" not in autoscaling.model_fields_set:
        target = {"target_ongoing_requests": TARGET * batch_size}
        autoscaling = autoscaling.model_copy(update=target)
    router = RequestRouterConfig(
        request_router_class=SessionRouter,  # type: ignore[arg-type]  # Ray declares it wrongly
        request_router_kwargs={"batch_size": batch_size},
    )
    replicas = serve.deployment(
        name="Replica",
        num_replicas=None if autoscaling else args.replicas,
        autoscaling_config=autoscaling,
        max_ongoing_requests=MAX_REQUESTS,
        ray_actor_options={"num_cpus": num_cpus},
        request_router_config=router,
        max_constructor_retry_count=CONSTRUCTOR_RETRIES,
        graceful_shutdown_timeout_s=settings.shutdown_timeout,
    )(Replica)
    ingress = serve.deployment(
        name="Ingress",
        max_ongoing_requests=MAX_REQUESTS,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=settings.shutdown_timeout,
    )(Ingress)
    own = settings.model_copy(update={"api_keys": ()})
    bound = replicas.bind(args.pipeline, own, num_cpus)
    application: Application = ingress.bind(bound, settings, args.log_level)
    return application
