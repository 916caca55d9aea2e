"""Spans of OpenTelemetry, which is loaded only where [telemetry] or the application asks for it."""
