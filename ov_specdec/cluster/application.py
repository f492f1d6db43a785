"""The application that Ray Serve runs: for `serve deploy`, and for `ov-specdec serve`."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any

import psutil
import ray
from fastapi import FastAPI
from pydantic import BaseModel, Field
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, HTTPOptions, RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig

from ov_specdec.cluster.cpus import largest_size, read_nodes
from ov_specdec.cluster.replica import RemoteEngine, Replica, SessionRouter
from ov_specdec.errors import DeviceError
from ov_specdec.generation.pipeline_options import PipelineOptions
from ov_specdec.server.access import set_up_log
from ov_specdec.server.app import make_app
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings

NAME = "ov-specdec"

LOGGING = LoggingConfig(log_level="WARNING", enable_access_log=False)  # the server logs requests


class ClusterArgs(BaseModel, extra="forbid"):
    """The arguments of the application; `args` in a `serve.yaml`.

    autoscale: Ray's `AutoscalingConfig`, in place of replicas. pipeline: of `SpeculativePipeline`;
    num_threads is also each replica's CPUs, by default an equal share. log_level: of the ingress.
    """

    replicas: int = Field(1, ge=1)
    autoscale: dict[str, Any] | None = None
    pipeline: dict[str, Any] = {}
    settings: dict[str, Any] = Field({}, repr=False)  # may contain API keys
    log_level: str = "info"


@serve.ingress()
class Ingress:
    """What clients reach: the server's routes. Checks and admits requests, and writes answers."""

    def __init__(
        self, replicas: DeploymentHandle[Any], settings: Settings, max_running: int, log_level: str
    ) -> None:
        set_up_log(log_level)
        self._replicas, self._service = replicas, Service(settings)
        self._max_running = max_running

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """The application, once a replica has loaded the models."""
        model = await self._replicas.describe.remote()
        self._service.take(RemoteEngine(self._replicas, self._max_running, model))
        return make_app(self._service)


def build(args: ClusterArgs) -> Application:
    """An ingress, which admits what all replicas can run; `OptionError` for invalid arguments."""
    pipeline, settings = PipelineOptions(**args.pipeline), Settings(**args.settings)
    batch_size = pipeline.max_batch_size
    target = {"target_ongoing_requests": 0.8 * batch_size}  # Ray advises 20 to 50 % headroom
    autoscaling = args.autoscale and AutoscalingConfig(**{**target, **args.autoscale})
    max_replicas = autoscaling.max_replicas if autoscaling else args.replicas
    num_cpus = pipeline.num_threads or largest_size(read_nodes(), max_replicas)
    shared: Any = {
        "max_ongoing_requests": 10_000,  # the ingress itself answers 429; a replica queues
        "graceful_shutdown_timeout_s": settings.shutdown_timeout,
    }
    replicas = serve.deployment(
        num_replicas=None if autoscaling else args.replicas,
        autoscaling_config=autoscaling,
        ray_actor_options={"num_cpus": num_cpus},
        request_router_config=RequestRouterConfig(
            request_router_class=SessionRouter,  # type: ignore[arg-type]  # Ray declares it wrongly
            request_router_kwargs={"batch_size": batch_size},
        ),
        # A missing model will not appear, but an ended replica may release its CPUs late.
        max_constructor_retry_count=2,
        **shared,
    )(Replica)
    ingress = serve.deployment(ray_actor_options={"num_cpus": 0}, **shared)(Ingress)
    keyless = settings.model_copy(update={"api_keys": ()})
    engines = replicas.bind(args.pipeline, keyless, num_cpus)
    return ingress.bind(engines, settings, batch_size * max_replicas, args.log_level)


def serve_replicas(
    args: ClusterArgs, host: str, port: int, address: str | None, on_ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C; running requests then get `shutdown_timeout` to end.

    address: of a Ray cluster; None starts one, which a signal ends at once while replicas load.
    on_ready: called when the server accepts requests.
    """
    ended = threading.Event()
    own: dict[str, Any] = {}
    if address is None:
        _on_signal(_leave)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no network calls
        own = {
            "num_cpus": sum(map(len, read_nodes())),
            "include_dashboard": False,
            "object_store_memory": 100_000_000,  # little, because chunks of text are sent inline
        }
    try:
        # Ray prints what its workers do. Without an address it would join a cluster that it finds.
        with redirect_stdout(sys.stderr), ray.init(address or "local", **own):
            if address is None:
                _on_signal(_leave)  # in place of Ray's handlers, which take seconds
            try:
                deploy(args, host, port)
                _on_signal(ended.set)
                on_ready()
                ended.wait()
            finally:
                serve.delete(NAME)
    except SystemExit as end:  # raised by Ray's own handler of SIGTERM, from its start on
        if end.code != signal.SIGTERM:
            raise
        _leave()


def deploy(args: ClusterArgs, host: str, port: int) -> None:
    """Start the application, or replace a running one, until it accepts requests; `DeviceError`."""
    serve.start(http_options=HTTPOptions(host=host, port=port), logging_config=LOGGING)
    try:
        serve.run(build(args), name=NAME, logging_config=LOGGING)
    except RuntimeError as error:
        failed = serve.status().applications[NAME]
        messages = [failed.message, *(each.message for each in failed.deployments.values())]
        # Ray's messages are tracebacks, which end with the error.
        reason = "\n".join(messages).strip().rpartition("\n")[2] or "see Ray's log"
        raise DeviceError(f"the replicas could not be started: {reason}") from error


def _leave() -> None:
    """End this process, after its children, at once."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):  # Ray may end it first
            child.kill()
    psutil.wait_procs(children, timeout=5)
    os._exit(0)


def _on_signal(act: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: act())
