"""The table: files as phones, cameras, broadcasters, recorders and operators make them. Groups by subject."""
# fmt: off

from __future__ import annotations

from typing import Any

from tests.video.world.row import Row, film, many, plain, refused, still

ONE_LESS: dict[str, Any] = {"result": "len(left_out) == 1"}
STREAMS = (
    film("one-frame MJPEG track first, MOV", "{B*.04} {A} {~440} {123} -c:v:0 mjpeg -c:v:1 libx264 a.mov", 50, "440",
          **ONE_LESS),
    still("poster, one-frame MJPEG track first", "{thumb} libx264 a.mov", 10, 0.41),
    *many(film, "larger default second, $1",
          "{B} {A:320x192} {12} {x} -disposition:v:0 0 -disposition:v:1 default a.$1", "mp4; mkv", size="320x192",
          **ONE_LESS),
    film("two programs, TS",
          "{B} {A:320x192} {~880} {~440} {123} -map 3 {x} -c:a mp2 -program st=0:st=2 -program st=1:st=3" " a.ts", 50,
          "440", size="320x192", result="len(left_out) == 2"),
    film("two mono tracks", "{A} {~440} {~880} {123} {x} -c:a pcm_s16le a.mov", 50, "440|880"),
    film("MJPEG first, WMV", "{thumb} wmv2 -b:v:1 1M a.wmv", **ONE_LESS),
    film("PNG first, MOV", "{B*.04} {A} {12} -c:v:0 png -c:v:1 libx264 -pix_fmt:v:1 yuv420p a.mov", **ONE_LESS),
    *many(film, "cover first, marked, $1",
          "{B*.04} {A} {12} -c:v:0 $1 -c:v:1 libx264 -disposition:v:0 attached_pic a.mp4", "mjpeg; png"),
    film("unknown sound second", "{A} {~440} {~880} {123} {x} -c:a:0 ac3 -c:a:1 aac a.mp4 && patch a.mp4 mp4a apac"
          " && patch a.mp4 esds dapa", 50, "440"),
    film("unknown sound first, both default",
          "{A} {~880} {~440} {123} {x} -c:a:0 aac -c:a:1 ac3 -disposition:a:1 default"
          " a.mp4 && patch a.mp4 mp4a apac && patch a.mp4 esds dapa", 50, "440", **ONE_LESS),
    film("second picture huffyuv", "{A} {B} {12} -c:v:0 libx264 -c:v:1 huffyuv a.mkv", **ONE_LESS),
    film("second sound wavpack", "{A} {~440} {~880} {123} {x} -c:a:0 aac -c:a:1 wavpack a.mkv", 50, "440", **ONE_LESS),
    film("TIFF as cover", "{A} {B*.04} {12} -c:v:0 libx264 -c:v:1 tiff -pix_fmt:v:1 rgb24 a.mkv"),
    *many(film, "WebP as attached cover, $1",
          "{B*.04} -c:v libwebp c.webp && {av} -attach c.webp -metadata:s:t mimetype=$1 a.mkv", "image/webp; font/ttf",
          50, "440"),
    film("two languages, second default", "{A} {~880} {~440} {123} {x} -metadata:s:a:0 language=eng -metadata:s:a:1"
          " language=deu -disposition:a:0 0 -disposition:a:1 default a.mkv", 50, "440"),
    film("sound track without samples", "{A} {~440*.001} {12} {x} -c:a pcm_s16le -frames:a 0 a.mov"),
    *many(film, "subtitles, $2, $1",
          "write t.srt '1\\n00:00:00,000 --> 00:00:01,000\\nhello\\n' && {A} -i t.srt {12} {x} -c:s $2 a.$1",
          "mp4|mov_text; mp4|ttml; mkv|ass; mkv|webvtt"),
)

SDR = (  # name, how it is encoded
    ("BT.601", "{A} {x} {tags smpte170m} -color_trc bt709 a.mp4"), ("BT.709", "{A} {709} {x} {tags bt709} a.mp4"),
    ("SD without tags", "{A} {x} a.mp4"), ("RGB", "{A} -c:v libx264rgb a.mkv"),
    ("full range BT.601", "{A} -c:v mjpeg -pix_fmt yuvj420p -q:v 2 a.avi"),
    ("full range BT.709", "{A} -vf scale=out_color_matrix=bt709:out_range=pc {x} -color_range pc {tags bt709} a.mp4"),
    ("BT.2020 without high range", "{A} {wide 709 limited} {10} b.mp4 && -i b.mp4 -c copy {as 14}:{all2020} a.mp4"),
    ("reserved matrix", "{A} {x} b.mp4 && -i b.mp4 -c copy -bsf:v h264_metadata=matrix_coefficients=3 a.mp4"),
)
HD = (
    ("BT.709, HD", "{A:1280x720*.2} {709} {x} {tags bt709} a.mp4"), ("HD without tags",
          "{A:1280x720*.2} {709} {x} a.mp4"),
    ("RGB, HD", "{A:1280x720*.2} -c:v libx264rgb -preset ultrafast a.mkv"),
)
HDR = (  # the tags that are there; 9 is BT.2020, 3 reserved
    ("all tags", "limited", "{10}", ":{all2020}"), ("transfer alone", "limited", "{10}", ""),
    ("no primaries", "limited", "{10}", ":matrix_coefficients=9"), ("no matrix", "limited", "{10}",
          ":colour_primaries=9"),
    ("reserved matrix", "limited", "{10}", ":colour_primaries=9:matrix_coefficients=3"), ("8 bits", "limited", "{x}",
          ""),
    ("reserved primaries", "limited", "{10}", ":colour_primaries=3:matrix_coefficients=9"),
    ("full range", "full", "{10}", ":{all2020}:video_full_range_flag=1"),
)
HDR_FILES = [(f"{name}, {each[0]}", zscale, *each[1:3], f"{number}{each[3]}")
             for name, zscale, number in (("PQ", "smpte2084", 16), ("HLG", "arib-std-b67", 18)) for each in HDR]
HDR_STEPS = ("{A*.4} {wide $2 $3} $4 b.mp4 && -i b.mp4 -c copy {as $5} a.mp4")
COLOURS = (
    *many(film, "$1", "$2", SDR, tags=True, tolerance=28), *many(film, "$1", "$2", HD, 5, size="1280x720", tags=True),
    film("HD without tags at 480", "{A:1280x720*.2} {709} {x} a.mp4", 5, size="854x480", args={"height": 480},
          tags=True),
    *many(still, "poster of $1", "$2", SDR, (0, 49), tolerance=28),
    *many(still, "poster of $1", "$2", HD, (0, 4), size="1280x720"),
    *many(film, "$1", HDR_STEPS, HDR_FILES, 10, colours="mapped", tags=True),
    *many(still, "poster of $1", HDR_STEPS, HDR_FILES, (0, 9), colours="mapped"),
)

SLIDES: dict[str, Any] = {"times": (0, .03, 2, 9, 21), "lasts": -1}
LATE: dict[str, Any] = {"times": [*(n / 25 for n in range(99)), 4.62], "lasts": 4.66}
OFFSET = "{av} b.mp4 && -i b.mp4 -c copy -output_ts_offset"
TIME = (
    *many(film, "slides, $1 $3", "{A*.2} {slide} $2 $3 a.$1",
          "webm|{vp8}|; webm|{vp8}|-live 1; mkv|{x}|; mkv|{x}|-live 1", 5, **SLIDES),
    *many(film, "slides with sound, $1 $3", "{A*.2} {~440*22} {slide} $2 $3 a.$1",
          "webm|{vp8}|; mkv|{x}|; webm|{vp8}|-live 1; mkv|{x}|-live 1", 5, "440", span=(0, 22), **SLIDES),
    film("last frame 0.7 s late", "{A*4} {at if(eq(N,99),4.62,N/25)} {vp8} a.webm", 100, **LATE),
    film("last frame 0.7 s late, draft", "{A*4} {at if(eq(N,99),4.62,N/25)} {vp8} a.webm", 100,
          args={"quality": "draft"}, **LATE),
    film("last frame 0.5 s late", "{A*4} {at if(eq(N,99),4.42,N/25)} {vp8} a.webm", 100, times=[*LATE["times"][:-1],
          4.42], lasts=4.46),
    film("slides of 3 to 9 s, MP4", "{A*.2} {at eq(N,1)*3+eq(N,2)*9+eq(N,3)*18+eq(N,4)*23} {x} a.mp4", 5, times=(0, 3,
          9, 18, 23), lasts=-1),
    film("slides of 5 s with sound", "{A@.2*20} {~440*20} {x} -c:a aac a.mp4", 4, "440", rate=.2, span=(0, 20)),
    film("slides of 20 s with sound", "{A@.05*60} {~440*60} {x} -c:a aac a.mp4", 3, "440", rate=.05, span=(0, 60)),
    film("claims 1000 frames a second", "{A} {x} -bsf:v h264_metadata=tick_rate=2000 a.mkv"),
    film("jitter", "{A} {at (N*40+mod(N*7,11))/1000} {vp8} a.webm",
          times=[n / 25 + n * 7 % 11 / 1000 for n in range(50)]),
    # x264's buffer model starves the pictures beside a pause or a leap (-maxrate without force-cfr=1).
    film("pause of 12 s", "{A} {at N/25+gte(N,25)*12} {vp8} a.webm", times=[n / 25 + (n >= 25) * 12 for n in range(50)],
          lasts=14),
    film("sound of 60 s, MP4", "{A} {~440*60} {x} -c:a aac a.mp4", 50, "440", span=(0, 60)),
    film("one frame with sound", "{A*.04} {~440} {x} -c:a aac a.mp4", 1, "440"),
    film("sound 15 s before the picture", "{late}", 50, "440", begins=15, span=(0, 17)),
    film("sound 1 s after the picture", "{A*3} -itsoffset 1 {~440} {12} {x} -c:a aac a.mkv", 75, "440", span=(1, 3)),
    film("5.1 sound after 7 s", "{A*9} -itsoffset 7 {~440|880|0|0|0|0} {12} {x} -c:a ac3 a.mkv", 225, "440|880",
          span=(7, 9)),
    *many(film, "start at 3600 s, $1", f"{OFFSET} 3600 $2 a.$1",
          "mkv|; mp4|; ts|; mov|-movflags +frag_keyframe+empty_moov", 50, "440"),
    *many(film, "start at -1 s, $1", f"{OFFSET} -1 -avoid_negative_ts disabled a.$1", "mkv; ts", 50, "440", times=None),
    film("start at -1 s, hidden by an edit list", f"{OFFSET} -1 -avoid_negative_ts disabled a.mp4", 25, "440", span=(0,
          1), numbers=range(25, 50)),
    *many(film, "TS that $1", "{av} a.ts && {av} -output_ts_offset $2 b.ts && cat c.ts a.ts b.ts",
          "leaps by 28 s|30; starts again|0", 100, "440", numbers=[*range(50)] * 2, span=(0, 4), lasts=4.0),
    film("TS of segments that continue", "{A*4} {~440*4} {x} -g 25 -c:a aac -f segment -segment_time 2 s%d.ts"
          " && cat c.ts s0.ts s1.ts", 100, "440", span=(0, 4)),
    film("TS over the wrap of 33 bits", f"{OFFSET} 95441.2 a.ts", 50, "440"), film("M2TS", "{av} a.m2ts", 50, "440"),
    film("gap in the sound", "{A} {~440} -af \"aselect='not(between(t,.5,1.5))'\" {x} -c:a aac a.mkv", 50, "440"),
    film("edit list of 1.5 s", "{A*4} {x} -g 100 b.mp4 && -ss 1.5 -i b.mp4 -c copy a.mp4", (61, 64), times=None,
          lasts=2.5),
    *many(plain, "$1 frames a second", "{t:160x96@$1*1} {x} a.mp4", "120; 240; 1000", (59, 61), rate=60, times=None),
    plain("100 frames a second at 30", "{t@100*1} {x} a.mp4", (29, 31), rate=30, times=None, args={"max_fps": 30}),
    plain("telecine", "{t@24*2} -vf telecine {x} a.mp4", (59, 61), rate=30, times=None, lasts=2),
    plain("23.976 and 29.97 frames a second",
          "{t@23.976*1} {x} a.mp4 && {t@29.97*1} {x} b.mp4 && write c.txt 'file a.mp4\\nfile b.mp4'"
          " && -f concat -i c.txt -c copy d.mkv", (52, 55), times=None, lasts=2),
)

CUT: dict[str, Any] = {"sound": "440", "span": None, "times": None, "lasts": -1,
     "result": "missing > 0 and damage is None"}
CUT_STEPS = "{A*4} {~440*4} $2 a.ts && skip_packets a.ts $3"
STARTS = (
    *many(film, "TS that begins inside a GOP, $1", CUT_STEPS,
          "H.264|{x} -g 25 -bf 0 -c:a aac|12; H.264 with B-frames|{x} -g 25 -bf 2 -c:a aac|12;"
          " 2 frames before the key|{x} -g 25 -bf 0 -c:a aac|23; MPEG-2|{mpeg2} -g 25 -c:a mp2|12;"
          " HEVC|{x265}:keyint=25:min-keyint=25:open-gop=0 -c:a aac|12", 75, numbers=range(25, 100), **CUT),
    *many(film, "TS that begins inside a GOP, $1", CUT_STEPS,
          "H.264 of 12|{x} -g 12 -c:a mp2|5; MPEG-2 of 12|{mpeg2} -bf 2 -g 12 -c:a mp2|5", (86, 90), **CUT),
    *many(film, "TS that begins inside a GOP, $1", CUT_STEPS,
          "open|{x} -g 25 -x264-params open-gop=1:bframes=3:b-adapt=0:scenecut=0 -c:a aac|12;"
          " HEVC, open|{x265}:keyint=25:min-keyint=25:open-gop=1 -c:a aac|12", (72, 78), **CUT),
    *many(film, "TS that begins inside $1", CUT_STEPS, "a GOP of 50|{x} -g 50 -c:a aac|12", 50, numbers=range(50, 100),
          **CUT),
    *many(film, "TS that begins inside $1", CUT_STEPS,
          "an intra refresh|{x} -x264-params intra-refresh=1:keyint=25 -c:a aac|12", (40, 88), **CUT),
)

DV, GREY = "{A:720x576@50*.48%2} {fields bff} -c:v dvvideo -pix_fmt yuv420p", "any"
PAFF = "write_fields a.h264 $2 && -i a.h264 -c copy -bsf:v setts=pts=N*1800:dts=N*1800 a.ts"
FIELDS = (
    *many(film, "fields of H.264, $1", PAFF + " $3", (("TS", "100", ""), *((kind, "100", f"&& -i a.ts -c copy a.{kind}")
          for kind in ("mkv", "mp4", "mov"))), colours=GREY),
    film("fields of H.264, an odd number", PAFF.replace("$2", "99"), (49, 50), lasts=2, colours=GREY),
    *many(film, "miniDV, $1", f"{DV} a.$1", "avi; mov; dv", 12, size="768x576"),
    film("MJPEG whose header says fields", "{A@50*2%2} {fields tff} -c:v mjpeg -q:v 2 -field_order tt a.mov"),
    film("HEVC fields", "{A:320x192@50*2%2} {fields tff},separatefields {x265}:interlace=tff a.mkv", size="320x192"),
    film("MBAFF", "{A@50*2%2} {fields tff} {x} -flags +ilme+ildct -x264-params tff=1 a.mp4"),
    *many(film, "MPEG-2 fields, $1", "{A@50*2%2} {fields tff} {mpeg2} -flags +ilme+ildct -top 1 a.$1",
          "ts; mkv; mov; vob; avi"),
    film("ProRes fields", "{A@50*2%2} {fields tff} -c:v prores_ks -flags +ilme+ildct -top 1 a.mov"),
)

CONCAT = ("{A:$1*1} CODEC a.mkv && {A:$2*1} CODEC b.mkv && write c.txt 'file a.mkv\\nfile b.mkv\\n'"
          " && -f concat -i c.txt -c copy c.mkv")
JOIN = {"vp8": CONCAT.replace("CODEC", "{vp8}"), "mkv": CONCAT.replace("CODEC", "{x}"),
        "ts": "{A:$1*1} {x} -bf 0 a.ts && {A:$2*1} {x} -bf 0 -output_ts_offset 1 b.ts && cat d.ts a.ts b.ts"}
TWICE: dict[str, Any] = {"numbers": [*range(25)] * 2, "padded": True}
SHAPES = (("320x180|180x320", "320x180"), ("180x320|320x180", "180x320"), ("160x96|320x192", "320x192"))
SIZES = (
    film("portrait", "{A:1080x1920*.2} {709} {x} a.mp4", 5, size="720x1280"),
    film("portrait by rotation", "{A:1080x1920*.2} {709},transpose=2 {x} a.mp4 && turn a.mp4 90", 5, size="720x1280"),
    *(row for kind, steps in JOIN.items() for changes, size in SHAPES
      for row in many(film, f"$1 then $2, {kind}", steps, changes, size=size, **TWICE)),
    *many(film, "161x91 4:4:4 turned by $1",
          "{A:91x161} -vf transpose=$2 -c:v libx264 -pix_fmt yuv444p a.mp4 && turn a.mp4 $1", "90|2; 270|1",
          size="90x160"),
    film("161x91 4:4:4 turned by 180",
          "{A:161x91} -vf hflip,vflip -c:v libx264 -pix_fmt yuv444p a.mp4 && turn a.mp4 180", size="160x90"),
    plain("161x91 4:4:4 turned by 45", "{t:161x91} -c:v libx264 -pix_fmt yuv444p a.mp4 && turn a.mp4 45",
          size="160x90"),
    film("pixels of 64:45, ten bits", "{A:1024x576*.2} -vf scale=720:576,setsar=64/45 {10} a.mkv", 5, size="1024x576"),
    plain("1x1", "{A:1x1*.2} -c:v ffv1 a.mkv", 5, size="2x2"),
    *(plain(size, f"{{t:{size}*.2}} -c:v ffv1 a.mkv", 5, size=size) for size in ("2x2", "14x14", "4096x2", "2x4096")),
)

NEAR = """qtrle mov; huffyuv avi; ffvhuff avi; utvideo avi; magicyuv avi; v210 mov; r210 mov; png mov; jpeg2000 mov;
cfhd -pix_fmt yuv422p10 mov; flashsv flv; zmbv avi; vc2 {709} -pix_fmt yuv422p10 mkv; snow -q:v 2 -pix_fmt yuv420p avi;
prores_ks -profile:v 3 mov; prores_ks -profile:v 4444 -pix_fmt yuva444p10 mov; mjpeg -pix_fmt yuvj420p -q:v 2 avi;
libx264 -qp 0 -pix_fmt yuv444p mkv; libx264 -pix_fmt yuvj420p mp4; libsvtav1 -preset 10 mp4;
libx265 -x265-params log-level=0 -pix_fmt yuv420p mp4; libvpx -b:v 1M -auto-alt-ref 1 -lag-in-frames 10 webm;
wmv2 -q:v 2 wmv; flv1 -q:v 2 flv; libvpx -b:v 1M -pix_fmt yuva420p -auto-alt-ref 0 webm; libxvid -q:v 2 avi;
libtheora -q:v 9 ogv;
libvpx-vp9 -b:v 1M -auto-alt-ref 1 -lag-in-frames 10 -cpu-used 8 -pix_fmt yuv420p webm"""
FAR = "svq1 mov; cinepak mov; hap mov; msvideo1 avi; msmpeg4 -q:v 9 avi"  # few colours
MONO = """aac -mpegts_flags latm ts; libgsm_ms -ar 8000 avi; nellymoser -ar 44100 flv; adpcm_swf -ar 44100 flv;
wavpack mkv; tta mkv; pcm_f32be mov; pcm_f64le mov; pcm_s8 mov; wmav2 mkv"""
STEREO = "s302m ts; truehd mkv; dca mkv"


def kinds(text: str) -> list[tuple[str, str]]:
    """The codec with its options, and the container."""
    return [(codec, kind) for codec, _, kind in (each.strip().rpartition(" ") for each in text.split(";"))]


CODECS = (
    *many(film, "$0", "{A} -c:v $1 a.$2", kinds(NEAR), tolerance=24),
    *many(film, "$0", "{A} -c:v $1 a.$2", kinds(FAR), tolerance=60),
    film("h261 avi", "{A:352x288} -c:v h261 a.avi", size="352x288", tolerance=40),
    *many(film, "DNxHR $1", "{A:256x144} {709} -c:v dnxhd -profile:v $1 -pix_fmt $2 a.mov",
          "dnxhr_hq|yuv422p; dnxhr_hqx|yuv422p10", size="256x144"),
    *many(film, "$0", "{A} {~440} {x} -c:a $1 a.$2", kinds(MONO), 50, "440"),
    *many(film, "$0", "{A} {~440|880} {x} -c:a $1 a.$2", kinds(STEREO), 50, "440|880"),
)

HEALTHY = "(?!MediaDamaged|PartlyReadable|MediaUnreadable).*"
CONTAINERS = (
    film("MXF", "{A} {~440} {mpeg2} -c:a pcm_s16le a.mxf", 50, "440"), film("GIF", "{A} a.gif", tolerance=40, lasts=-1),
    film("APNG", "{A} -plays 0 a.apng", lasts=-1), film("y4m", "{A} -pix_fmt yuv420p a.y4m"),
    film("raw H.264", "{A} {x} -bf 0 a.h264"), film("raw HEVC", "{A} {x265} a.hevc"),
    film("RealMedia", "{A} {~440} -c:v rv20 -q:v 9 -c:a ac3 a.rm", 50, "440", tolerance=40),
    film("3GP", "{A:176x144} {~440} -c:v h263 -q:v 9 -ar 8000 -c:a aac a.3gp", 50, "440", size="192x144", tolerance=40),
    *many(film, "fragments, $1", "{av} -movflags $1 a.mp4",
          "+frag_keyframe+empty_moov+default_base_moof; +cmaf; +frag_every_frame+empty_moov", 50, "440"),
    film("chapters and a time code", "{A} {x} -timecode 01:00:00:00 -metadata title=a a.mov"),
    film("a data track", "{A} {x} -timecode 01:00:00:00 a.mov && patch a.mov tmcd gpmd"),
    film("garbage behind", "{av} a.mp4 && garbage a.mp4 20000", 50, "440"),
    refused("animated WebP", "{A} -c:v libwebp_anim a.webp", HEALTHY, "webp"),
    *many(refused, "$1", "{A*.04} $2 a.$1", "jpg|; png|; webp|-c:v libwebp; bmp|; tiff|-pix_fmt rgb24", HEALTHY,
          "still|picture|image"),
    refused("HEIC", "{A*.04} {x} -f mp4 a.heic && patch a.heic ftypisom ftypheic && patch a.heic moov meta", ".*",
          "hei[cf]|still|image"),
    *many(refused, "sound with a cover, $1", "{A*.04} c.jpg && {~440} $2 -c:v mjpeg a.$1",
          "m4a|-i c.jpg {12} -disposition:v:0 attached_pic; mp3|-i c.jpg {12} -disposition:v:0 attached_pic;"
          " mka|-attach c.jpg -metadata:s:t mimetype=image/jpeg", HEALTHY, "picture|sound|audio"),
)

LAYOUTS = {3: "2.1 3.0 3.0(back)", 4: "4.0 quad quad(side) 3.1", 5: "5.0 5.0(side) 4.1", 16: "hexadecagonal",
      24: "22.2",
           6: "6.0 6.0(front) hexagonal 5.1 5.1(side)", 7: "6.1 6.1(back) 6.1(front) 7.0 7.0(front)",
           8: "7.1 7.1(wide) 7.1(wide-side) octagonal"}
SECOND: dict[str, Any] = {"frames": 25, "sound": "440|880", "span": (0, 1)}
SOUND = (
    *(film(layout, f"{{A*1}} '{{~440|880{'|0' * (count - 2)}*1={layout}}}' {{12}} {{x}} -c:a pcm_s16le a.mov", **SECOND)
          for count, layouts in LAYOUTS.items() for layout in layouts.split()),
    *(film(f"{count} channels without a layout",
          f"{{A*1}} {{~440|880{'|0' * (count - 2)}*1=?}} {{12}} {{x}} -c:a pcm_s16le a.avi", **SECOND) for count in (3,
          4, 6, 8, 16)),
    film("front left as only channel", "{A*1} {~440*1=FL} {x} -c:a pcm_s16le a.mov", 25, "440", span=(0, 1)),
    film("downmixed pair", "{A*1} {~440|880*1=downmix} {x} -c:a pcm_s16le a.mkv", **SECOND),
    film("Opus, family 255", "{A} {~440|880|0=?} {12} {x} -c:a libopus -mapping_family 255 a.mkv", 50, "440|880"),
    film("Opus, ambisonic", "{ambisonic}", 50, "440|440"),
    *(film(f"sound changes, {first} to {second}",
          f"{{A*1}} {{~{first}*1}} {{12}} {{x}} -c:a {codec} a.ts && {{A*1}} {{~{second}*1}} {{12}} {{x}}"
          f" {rate} -c:a {codec} b.ts && -i b.ts -c copy -output_ts_offset 1 c.ts && cat d.ts a.ts c.ts", (48, 50),
          sound, numbers=None, colours="any", times=None) for codec, first, second, rate, sound in (
          ("ac3", "440|880", "440|880|0|0|0|0", "", "440|880"), ("ac3", "440|880|0|0|0|0", "440|880", "", "440|880"),
          ("aac", "440|440", "440", "", "440|440"), ("aac", "440", "440", "-ar 44100", "440"))),
)

PAUSE = "{at N/25+gte(N,25)*15} {x}"
SEAMS = (
    film("1 frame a second at most", "{A*2.6} {~440*2.6} {x} -c:a aac a.mp4", 3, "440", args={"max_fps": 1},
         numbers=(0, 19, 44), times=None, lasts=2.6, span=None),
    film("24, then 120 frames a second", "{A*1.2} {at if(lt(N,24),N/24,1+(N-24)/120)} {x} a.mp4", (28, 30),
         args={"max_fps": 60}, numbers=None, times=None, lasts=1.05),
    film("a late picture without its sound", "{A} {~440*5} {12} -vf setpts=PTS+3/TB -fps_mode passthrough {x} -c:a aac"
         " a.mkv", args={"audio": False}, result="len(left_out) == 0"),
    film("a commentary beside the sound", "{A} {~440} {~880} {123} {x} -c:a pcm_s16le -disposition:a:0 0"
         " -disposition:a:1 default+comment a.mkv", sound="440", **ONE_LESS),
    film("slides with sound, ts", "{A*.4} {~440*30} {at N*3} {x} -bf 0 -c:a aac a.ts", 10, "440", numbers=range(10),
         times=[n * 3 for n in range(10)], lasts=30, span=(0, 30)),
    *(film(f"a pause of 15 s, ts {sound}", f"{{A}} {more} {PAUSE} a.ts", 50, sound, lasts=17, span=None,
           times=[n / 25 + (n >= 25) * 15 for n in range(50)])
      for sound, more in (("", ""), ("440", "{~440*17} -c:a aac"))),
    film("slides of 100 s", "{A*.4} {at N*100} -c:v ffv1 a.mkv", 10, times=[n * 100 for n in range(10)], lasts=-1),
    still("a slide of a minute, 100.0 s", "{A*.2} {at N*60} {x} a.mp4", 1, 100.0, shown=60.0),
    film("curve of gamma 2.8", "{A:720x576*.4} {mpeg2} -color_primaries bt470bg -color_trc gamma28 -colorspace bt470bg"
         " a.vob", 10, size="720x576", colours="any"),
    film("a still of 20 s beside the film", "{B:320x192@.05*20} {A} {12} {x} -disposition:v:1 default a.mkv",
         **ONE_LESS),
    film("portrait behind landscape, mp4", "{A:160x96*1} {x} a.mp4 && {A:96x160*1} {x} b.mp4 && write c.txt"
         " 'file a.mp4\\nfile b.mp4\\n' && -f concat -i c.txt -c copy c.mp4", (49, 50), numbers=None, times=None,
         padded=True, colours="any"),
    still("of a file that begins again", "{A} {x} a.ts && cat b.ts a.ts a.ts", 25, 3.0, shown=3.0),
)

AFTER: dict[str, Any] = {"call": "poster", "args": {"at": 5.0}}
ONE_FRAME = "mp4|{x}; webm|{vp8}; mov|{x}; ts|{x}"
STARTING = (("3600", "mkv", ""), ("3600", "mp4", ""), ("3600", "ts", ""), *(("-1", kind, "-avoid_negative_ts disabled")
      for kind in ("mkv", "mp4", "ts")))
POSTERS = (
    *many(still, "one group of pictures, default, $1", "{A*9} {x} -g 250 a.$1", "ts; m2ts", (0, 224)),
    still("one group of pictures of 2 s, default", "{A} {x} -g 250 a.ts", (0, 49)),
    *(row for at in (0.0, 0.91, 8.5) for row in many(still, f"one group of pictures, {at} s, $1",
          "{A*9} {x} -g 250 a.$1", "ts; m2ts; mkv; mp4", int(at * 25), at)),
    *(row for at in (4.41, 8.61) for row in many(still, f"groups of 2 s, {at} s, $1", "{A*9} {x} -g 50 a.$1",
          "ts; mkv; mp4", int(at * 25), at)),
    *(still(f"VOB, {at} s", "{A*9} {mpeg2} -g 12 a.vob", int(at * 25), at) for at in (0.0, 4.41)),
    *(still(f"slides, {at} s", "{A*.2} {slide} {x} a.mkv", number, at, shown=shown) for at, number, shown in ((1.0, 1,
          .03), (8.0, 2, 2), (20.0, 3, 9), (21.0, 4, 21))),
    *many(still, "sound of 60 s, $1", "{A} {~440*60} $2 a.$1", "mp4|{x} -c:a aac; webm|{vp8}", (0, 49)),
    *many(refused, "after the picture's end, $1", "{A} {~440*60} $2 a.$1", "mp4|{x} -c:a aac; webm|{vp8}",
          "RequestRefused", r"\b2(\.\d+)? s|1\.96", **AFTER),
    still("one frame with sound", "{A*.04} {~440} {x} -c:a aac a.mp4", 0),
    *many(still, "one frame, $1", "{A*.04} $2 a.$1", ONE_FRAME, 0), *many(film, "film of one frame, $1",
          "{A*.04} $2 a.$1", ONE_FRAME, 1),
    still("sound 15 s before the picture", "{late}", (0, 49)),
    *many(still, "start at $1 s, $2", f"{OFFSET} $1 $3 a.$2", STARTING, (0, 49)),
)

BROKEN = "PartlyReadable|MediaDamaged|MediaUnreadable"
DAMAGE = (
    *many(refused, "half a file, $1 $2", "{av} $2 a.$1 && shorten a.$1 50",
          "mkv|; mp4|; mp4|-movflags +faststart; mov|-g 5 -movflags +frag_keyframe+default_base_moof+global_sidx",
          BROKEN, "%|moov"),
    film("half a TS", "{av} a.ts && shorten a.ts 50", (20, 30), "440", span=None, lasts=-1),
    refused("noise in place of the sound", "{av} a.mp4 && noise a.mp4 a", BROKEN, "damaged"),
    film("noise in place of the sound, without it", "{av} a.mp4 && noise a.mp4 a", args={"audio": False}),
    film("noise in place of the sound, salvaged", "{av} a.mp4 && noise a.mp4 a", 50, "any", args={"salvage": True},
          span=None, lasts=-1),
    refused("noise in place of the picture", "{av} a.mp4 && noise a.mp4 v", BROKEN),
)

NAMES = ("-i.mp4", "%d.mp4", "img%03d.mp4", "😀.mp4", "it's \"x\".mp4", "*[a]?.mp4", "http:x.mp4", "pipe:0", "a\\b.mp4",
         "e\u0301.mp4", "\u202eabc.mp4", "blank ", "y" * 232 + ".mp4")
TOO_LONG, TWO_LINES = "x" * 251 + ".mp4", "a\nb.mp4"
PLACES = (
    film("IMG_1.MOV beside IMG_1.mp4", "{B} {x} IMG_1.MOV && {A} {x} IMG_1.mp4", first="IMG_1.MOV"),
    film("an upload named as an output", "{A} {x} clip.mov && {B} {x} clip-720p.mp4", source="clip.mov"),
    refused("an upload named as this output", "{A} {x} clip.mov && {B} {x} clip.mov-720p.mp4", "OutputExists",
          source="clip.mov"),
    film("an output that may be replaced", "{A} {x} clip.mov && {B} {x} clip.mov-720p.mp4", source="clip.mov",
          args={"replace": True}, replaces="clip.mov-720p.mp4"),
    *(film(f"name {name[:20]!r}", "{A*.4} {x} a.mp4", 10, named=name) for name in NAMES),
    *(refused(f"a name {text!r}", "{A*.4} {x} a.mp4", ".*Refused", "output=", named=name) for text,
          name in (("of 255 bytes", TOO_LONG), ("of two lines", TWO_LINES))),
    *(film(f"a name {text!r}, with output", "{A*.4} {x} a.mp4", 10, named=name, args={"output": "o.mp4"}) for text,
          name in (("of 255 bytes", TOO_LONG), ("of two lines", TWO_LINES))),
)

WHEEL = (
    *(refused(f"AV1, {call}", "{A} -c:v libsvtav1 -preset 10 a.webm", "ToolLacks", "av1", final=False, call=call)
          for call in ("transcode", "poster")),
    *many(refused, "$1", HDR_STEPS, HDR_FILES[:1], "ToolLacks", "zscale", final=False),
    film("H.264", "{av} a.mp4", 50, "440"), film("VP8", "{A} {~440} {vp8} a.webm", 50, "440"), film("Opus, ambisonic",
          "{ambisonic}", 50, "440|440"),
    still("sound of 60 s", "{A} {~440*60} {x} -c:a aac a.mp4", (0, 49)), still("one group of pictures",
          "{A*9} {x} -g 250 a.ts", (0, 224)),
    film("fields of H.264, MP4", PAFF.replace("$2", "100") + " && -i a.ts -c copy a.mp4", colours=GREY),
    film("last frame 0.7 s late", "{A*4} {at if(eq(N,99),4.62,N/25)} {vp8} a.webm", 100, **LATE),
    *many(film, "TS that begins inside a GOP, $1", CUT_STEPS, "H.264|{x} -g 25 -c:a aac|12", 75, numbers=range(25, 100),
          **CUT),
)

GROUPS: dict[str, tuple[Row, ...]] = {
    "streams": STREAMS, "colours": COLOURS, "time": TIME, "starts": STARTS, "fields": FIELDS, "sizes": SIZES,
    "codecs": CODECS, "containers": CONTAINERS, "sound": SOUND, "posters": POSTERS, "damage": DAMAGE, "names": PLACES,
    "wheel": WHEEL, "seams": SEAMS,
}
WORST = (  # what loses content, then wrong pictures, then healthy files that are refused
    "one-frame MJPEG track first, MOV", "larger default second, mp4", "two programs, TS", "two mono tracks",
    "IMG_1.MOV beside IMG_1.mp4", "an upload named as an output", "poster of BT.709", "poster of BT.709, HD",
    "groups of 2 s, 4.41 s, ts", "portrait", "miniDV, avi", "MJPEG whose header says fields",
    "320x180 then 180x320, vp8", "HD without tags at 480", "BT.2020 without high range", "PQ, transfer alone",
    "last frame 0.7 s late", "TS that begins inside a GOP, H.264", "sound of 60 s, mp4",
    "one group of pictures, default, ts",
)
