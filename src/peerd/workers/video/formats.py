"""The containers and codecs that may be decoded; docs/video.md gives the reasons.

A container is refused if its demuxer can open other files: playlists, manifests, concatenation scripts, image
sequences; ffmpeg recognises them in a file of any name. A decoder sees the bytes of one packet and can open
nothing, so all are accepted that cameras, editors, screen recorders, broadcasters and archives write. Refused are
those that no film needs: text art, still pictures, cutscenes of games, and decoders that open a device or take
pointers as bytes.
"""

from __future__ import annotations

FORMATS = (
    *("mov", "mp4", "m4a", "3gp", "3g2", "mj2", "matroska", "webm", "avi", "mpeg", "mpegts", "ogg", "flv", "asf"),
    *("mxf", "dv", "rm", "gif", "apng", "yuv4mpegpipe", "h264", "hevc"),
)
"""By the names of their demuxers."""
FORMATS_TEXT = "MP4, MOV, Matroska, WebM, AVI, MPEG, MXF, Ogg, FLV or ASF"
PLAYLISTS = frozenset(("hls", "dash", "concat", "sdp", "imf", "image2", "tty", "rtsp", "webm_dash_manifest"))
"""Demuxers that name other files."""
CLAIMED_LENGTH = frozenset(("mov", "matroska", "avi", "flv", "mxf"))
"""Containers whose header claims a length; of others ffprobe estimates it from what is there."""
LENGTH_FROM_ZERO = frozenset(("mov", "matroska", "asf"))
"""Containers whose length counts from time 0 and not from the first picture or sound."""
BROKEN_TIMES = frozenset(("mpegts", "mpeg"))
"""Containers whose times may leap or begin again; ffmpeg goes on as if they did not (its AVFMT_TS_DISCONT)."""
INDEXED = frozenset(("mov", "matroska", "avi", "mxf"))
"""Containers in which seeking finds the key frame before a time."""

_VIDEO = """
h264 hevc av1 vp8 vp9 vp3 vp4 vp5 vp6 vp6a vp6f vp7 mpeg1video mpeg2video mpeg4 msmpeg4v1 msmpeg4v2 msmpeg4v3 h261
h263 h263i h263p flv1 theora dirac vc1 wmv1 wmv2 wmv3 mjpeg mjpegb amv cavs snow rv10 rv20 rv30 rv40 svq1 svq3
cinepak indeo2 indeo3 indeo4 indeo5 rpza smc msvideo1
prores dnxhd dvvideo cfhd hap dxv speedhq notchlc pixlet aic hq_hqa hqx cllc v210 v210x v308 v408 v410 r210 r10k
avui avrp avrn ayuv y41p yuv4 cljr rawvideo jpeg2000 jpegls png
ffv1 huffyuv ffvhuff hymt utvideo magicyuv lagarith sheervideo qtrle 8bps msrle cscd zmbv tscc tscc2 flashsv flashsv2
fraps zlib mszh loco vble dxtory g2m mss1 mss2 msa1 fic rasc wcmv mwsc scpr ylc gif apng
"""  # of distribution and cameras; of editing; of archives, screens and animations
_AUDIO = """
aac aac_latm ac3 eac3 mp1 mp2 mp3 opus vorbis flac alac dts truehd mlp speex wavpack tta ape wmav1 wmav2 wmapro
wmalossless wmavoice cook sipr ra_144 ra_288 atrac3 qdm2 qdmc mace3 mace6 nellymoser amr_nb amr_wb gsm gsm_ms qcelp
evrc ilbc g723_1 g729 adpcm_g722 adpcm_g726 adpcm_g726le adpcm_ms adpcm_ima_wav adpcm_ima_qt adpcm_ima_amv adpcm_swf
adpcm_yamaha s302m dvaudio pcm_s8 pcm_u8 pcm_s16le pcm_s16be pcm_u16le pcm_u16be pcm_s24le pcm_s24be pcm_u24le
pcm_u24be pcm_s32le pcm_s32be pcm_u32le pcm_u32be pcm_s64le pcm_s64be pcm_f32le pcm_f32be pcm_f64le pcm_f64be
pcm_s8_planar pcm_s16le_planar pcm_s16be_planar pcm_s24le_planar pcm_s32le_planar pcm_alaw pcm_mulaw pcm_bluray pcm_dvd
pcm_vidc
"""
CODECS = frozenset((*_VIDEO.split(), *_AUDIO.split()))
UNSAFE_DECODERS = ("_v4l2m2m", "_cuvid", "_qsv", "_mediacodec", "_rkmpp", "_amf", "wrapped_avframe")
"""Ends of the names of decoders that open a device, or take pointers as bytes."""
HARDWARE_ONLY = frozenset(("av1",))
"""Decoders of a name that promises more: without a device they decode nothing."""
WHOLE_FRAMES = frozenset(("h264", "hevc", "av1", "vp9", "mpeg2video", "theora", "prores", "mjpeg", "dvvideo", "ffv1"))
"""Codecs in which each packet becomes a frame, apart from fields."""
