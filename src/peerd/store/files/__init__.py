"""The catalogue of files: classes, buckets, disks, versions, copies, and checks of what files need."""
