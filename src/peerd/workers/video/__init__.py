"""The video worker: probe, transcode, poster; docs/video.md. It uses peerd's public API, as a user's own worker would.

::

    [workers.video]
    tasks = "peerd.workers.video:video"
    [workers.video.options]
    directory = "/srv/media"

``MediaRefused`` (the source or the request is at fault) makes a task dead at once; everything else is retried.
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
