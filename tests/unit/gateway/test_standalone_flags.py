from __future__ import annotations

import pytest

from peerd.domain.task import BODY_LIMIT
from peerd.gateway.standalone.flags import ProgramExit, parse_flags

MAX = BODY_LIMIT


def test_flags_are_read_as_beanstalkd_reads_them() -> None:
    for arguments, flags in (
        ([], {}), (["-l", "0.0.0.0", "-p", "11301"], {"address": "0.0.0.0", "port": "11301", "names_address": True}),
        (["-l0.0.0.0", "-p11301"], {"address": "0.0.0.0", "port": "11301", "names_address": True}),
        (["-l", "unix:/run/jobs.sock"], {"address": "unix:/run/jobs.sock", "names_address": True}),
        (["-b", "/var/jobs", "-f", "0"], {"folder": "/var/jobs", "sync_interval": 0.0}),
        (["-b", "/var/jobs", "-f200"], {"folder": "/var/jobs", "sync_interval": 0.2}),
        (["-f", "10", "-F"], {"sync_interval": None}), (["-F", "-f", "10"], {"sync_interval": 0.01}),
        (["-VV"], {"verbosity": 2}), (["-VFVz10"], {"verbosity": 2, "sync_interval": None, "max_job_size": 10}),
        (["-z", "0"], {"max_job_size": 0}), (["-z", str(MAX)], {"max_job_size": MAX}),
        (["-s", "4097"], {"log_size": 8192}), (["-u", "jobs"], {"user": "jobs"}), (["-b", "-F"], {"folder": "-F"}),
    ):  # fmt: skip
        assert vars(parse_flags(arguments, "1.13")) == {"warnings": [], **flags}, arguments
    for arguments, letters in ((["-c"], "-c"), (["-n"], "-n"), (["-cVn"], "-n")):
        assert letters in parse_flags(arguments, "1.13").warnings[-1]
    for size in ("-1", str(MAX + 1), str(2**30), "999999999999999999"):
        found = parse_flags(["-z", size], "1.13")
        assert (found.max_job_size, found.warnings) == (MAX, [f"maximum job size was set to {MAX}"])


def test_what_is_no_flag_is_refused_with_its_cause_and_the_usage() -> None:
    for arguments, problem in (
        (["-Q"], "unknown flag: -Q"), (["-VQ"], "unknown flag: -Q"), (["--help"], "unknown flag: --"),
        (["jobs"], "unknown argument: jobs"), (["-"], "unknown argument: -"), ([""], "unknown argument: "),
        (["-b"], "flag requires an argument: -b"), (["-Vp"], "flag requires an argument: -p"),
        (["-f", "x"], "invalid size: x"), (["-f", "1.5"], "invalid size: 1.5"), (["-z", "10b"], "invalid size: 10b"),
        (["-z", "--1"], "invalid size: --1"), (["-s", ""], "invalid size: "), (["-s", "-1"], "invalid size: -1"),
        (["-f", "9" * 400], "invalid size: 999"), (["-z", "\u0663"], "invalid size: \u0663"),
    ):  # fmt: skip
        with pytest.raises(ProgramExit) as refused:
            parse_flags(arguments, "1.13")
        assert refused.value.status == 5
        first, *usage = refused.value.text.splitlines()
        assert first.startswith(f"peerd-beanstalkd: {problem}")
        assert any(" -b DIR " in line for line in usage)
    for arguments, text in ((["-V", "-v"], "beanstalkd 1.13\n"), (["-h"], f"{usage[0]}\n")):
        with pytest.raises(ProgramExit) as printed:
            parse_flags(arguments, "1.13")
        assert printed.value.status == 0
        assert text in printed.value.text
