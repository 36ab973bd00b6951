"""The control API: every address of docs/api.md but `/fn/`, as one aiohttp application.

The lean front hands it connections that are not for functions, so every answer closes its connection.
"""

from __future__ import annotations

from aiohttp import web

from gateway.web.api_deploy import DeployApi
from gateway.web.api_frame import guard
from gateway.web.api_functions import FunctionsApi
from gateway.web.api_logs import LogsApi
from gateway.web.api_services import ApiParams, ApiServices
from gateway.web.api_status import StatusApi
from gateway.web.api_tokens import TokensApi

__all__ = ["ApiParams", "ApiServices", "build_api"]


def build_api(services: ApiServices, params: ApiParams | None = None) -> web.Application:
    """The application. Shutting it down ends deploys under way and followers of logs."""
    params = params or ApiParams()
    application = web.Application(middlewares=[guard(services)], client_max_size=params.json_bytes_max)
    deploys = DeployApi(services, params)
    parts = (
        StatusApi(services),
        FunctionsApi(services, params),
        deploys,
        LogsApi(services, params),
        TokensApi(services, params),
    )
    for part in parts:
        application.add_routes(part.routes())

    async def shut_down(_: web.Application) -> None:
        services.logs.let_followers_go()
        await deploys.close()

    application.on_shutdown.append(shut_down)
    return application
