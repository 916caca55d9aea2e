"""Run ffmpeg and ffprobe, and read what they print."""
