"""The video worker: probe, transcode, poster; docs/video.md. It uses only peerd's public API.

::

    [workers.video]
    tasks = "peerd.workers.video:video"
    [workers.video.options]
    directory = "/srv/media"

``MediaRefused`` (a fault of the source or the request) makes a task dead at once; other errors are retried.
"""

from __future__ import annotations

from peerd import Queue
from peerd.workers.video import jobs
from peerd.workers.video.errors import MediaRefused, VideoError

video = Queue("video")
probe = video.task(timeout="10m", discard_on=(MediaRefused,))(jobs.probe)
transcode = video.task(timeout="2h", discard_on=(MediaRefused,))(jobs.transcode)
poster = video.task(timeout="10m", discard_on=(MediaRefused,))(jobs.poster)

__all__ = ["MediaRefused", "VideoError", "poster", "probe", "transcode", "video"]
