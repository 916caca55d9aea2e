"""Where copies belong: pure functions of files, copies and disks.

`brake` judges which disks are missing, `decision` what one file needs, `choice` which disks get a copy.
"""
