"""What the app was created with, or finds in the web process that serves it: its client, [access], the site's login."""

from __future__ import annotations

from starlette.types import Scope

from peerd.config.settings import AccessSettings
from peerd.operate.client import Client
from peerd.web.access.authentication import Authenticate
from peerd.web_server.app_state import access_settings


class AppAccess:
    """Of one app.

    Args:
        client: None: that of the web process.
        settings: None: those of the web process, or the defaults.
        authenticate: the login of the site that the app is mounted in.
    """

    def __init__(
        self, client: Client | None, settings: AccessSettings | None, authenticate: Authenticate | None
    ) -> None:
        self._client = client
        self._settings = settings
        self.authenticate = authenticate

    def settings_of(self, scope: Scope) -> AccessSettings:
        """[access], for a request."""
        return self._settings or access_settings(scope.get("state", {})) or AccessSettings()

    def client_of(self, scope: Scope) -> Client:
        """The client for a request."""
        if self._client is not None:
            return self._client
        process = scope.get("state", {}).get("peerd")
        if process is None:
            raise RuntimeError("no web process of peerd serves this app: give create_app a client")
        client: Client = process.client
        return client
